// A counter that knows nothing of logs and replicas; see docs/foreign.md.
//
//	go build -o counter ambrosia.go main.go
//	deathless ambrosia check --method 1 ./counter
//
// Method 1 adds the length of its arguments. At each tenth call the counter tells itself the total, by method 2, and a call
// that wants an answer gets the total.
package main

import (
	"encoding/binary"
	"log"
)

const (
	add   = 1
	total = 2
)

// Counter counts calls and bytes; told is the last total that came back.
type Counter struct{ calls, bytes, told int64 }

func (c *Counter) Handle(b *Binding, call Call) {
	switch call.Method {
	case add:
		c.calls++
		c.bytes += int64(len(call.Arguments))
		if c.calls%10 == 0 {
			b.Fork("", total, c.sum())
		}
	case total:
		if len(call.Arguments) == 8 {
			c.told = int64(binary.LittleEndian.Uint64(call.Arguments))
		}
	}
	if call.Kind == 0 {
		b.Answer(call, c.sum())
	}
}

func (c *Counter) sum() []byte { return binary.LittleEndian.AppendUint64(nil, uint64(c.bytes)) }

func (c *Counter) Save() []byte {
	state := binary.LittleEndian.AppendUint64(nil, uint64(c.calls))
	state = binary.LittleEndian.AppendUint64(state, uint64(c.bytes))
	return binary.LittleEndian.AppendUint64(state, uint64(c.told))
}

func (c *Counter) Load(state []byte) {
	c.calls = int64(binary.LittleEndian.Uint64(state))
	c.bytes = int64(binary.LittleEndian.Uint64(state[8:]))
	c.told = int64(binary.LittleEndian.Uint64(state[16:]))
}

func (c *Counter) First() []byte { return []byte("counter") }

func (c *Counter) Upgrade() {}

func main() {
	if err := Run(&Counter{}); err != nil {
		log.Fatal(err)
	}
}
