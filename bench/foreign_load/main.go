// A program that sends and counts, for the figures of services whose code is a program; bench/services/foreign_load.py
// does the same. It is built together with examples/foreign/go/ambrosia.go.
//
//	1 start  u32 messages, u32 size, name: forks so many of method 2 to that service
//	2 add    counts itself and its bytes
//	3 read   answers with messages, bytes and answers, u64 each
//	4 ask    u32 calls, u32 outstanding, name: calls method 3 of that service so often, so many at once
//	5 fill   u64 size: state has so many bytes beside the counts
package main

import (
	"encoding/binary"
	"log"
)

const (
	start = 1
	add   = 2
	read  = 3
	ask   = 4
	fill  = 5
	head  = 48 // counts: messages, bytes, answers, calls asked for, left to make, length of the name
)

// Load is state as it is saved: counts, the name that is asked, and what it was filled with.
type Load struct{ state []byte }

func (l *Load) count(at int, more int64) int64 {
	value := number(l.state[8*at:]) + more
	binary.LittleEndian.PutUint64(l.state[8*at:], uint64(value))
	return value
}

const nameBytes = 64

func (l *Load) name() string { return string(l.state[head : head+l.count(5, 0)]) }

func (l *Load) Handle(b *Binding, call Call) {
	arguments := call.Arguments
	switch {
	case call.Kind > 2: // an answer
		l.count(2, 1)
		l.next(b, 1)
	case call.Method == start:
		messages, size := binary.LittleEndian.Uint32(arguments), binary.LittleEndian.Uint32(arguments[4:])
		to, note := string(arguments[8:]), make([]byte, size)
		for range messages {
			b.Fork(to, add, note)
		}
	case call.Method == add:
		l.count(0, 1)
		l.count(1, int64(len(arguments)))
	case call.Method == ask:
		l.count(4, int64(binary.LittleEndian.Uint32(arguments)))
		l.count(5, int64(len(arguments)-8)-l.count(5, 0))
		copy(l.state[head:head+nameBytes], arguments[8:])
		l.next(b, int(binary.LittleEndian.Uint32(arguments[4:])))
	case call.Method == fill:
		size := binary.LittleEndian.Uint64(arguments)
		l.state = append(l.state[:head+nameBytes:head+nameBytes], make([]byte, size)...)
	}
	if call.Kind == 0 {
		b.Answer(call, l.state[:24])
	}
}

// next makes calls that are left, at most so many.
func (l *Load) next(b *Binding, most int) {
	for ; most > 0 && l.count(4, 0) > 0; most-- {
		l.count(4, -1)
		b.Call(l.name(), read, l.count(3, 1), nil)
	}
}

func number(data []byte) int64 { return int64(binary.LittleEndian.Uint64(data)) }

func (l *Load) Save() []byte      { return l.state }
func (l *Load) Load(state []byte) { l.state = state }
func (l *Load) First() []byte     { return []byte("load") }
func (l *Load) Upgrade()          {}

func main() {
	binding, err := Connect(&Load{make([]byte, head+nameBytes)})
	if err != nil {
		log.Fatal(err)
	}
	if err := binding.Run(); err != nil {
		log.Fatal(err)
	}
}
