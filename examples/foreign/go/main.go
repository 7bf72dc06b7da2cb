// A counter that knows nothing of logs and replicas; see docs/foreign.md.
//
//	go build -o counter ambrosia.go main.go
//	deathless ambrosia check --method 1 ./counter
//
// Method 1 adds the length of its arguments. At each tenth call the counter tells itself the total, by method 2, and at each
// 25th it asks itself for it. A call that wants an answer gets the total. Ten times a second the counter brings in the
// time, by method 3: a clock is something outside, so it comes as an impulse and is logged.
package main

import (
	"encoding/binary"
	"log"
	"time"
)

const (
	add   = 1
	total = 2
	tick  = 3
)

// Counter counts calls and bytes; told is the last total that came back, and now the last time.
type Counter struct{ calls, bytes, told, now int64 }

func (c *Counter) Handle(b *Binding, call Call) {
	switch call.Method {
	case add:
		c.calls++
		c.bytes += int64(len(call.Arguments))
		if c.calls%10 == 0 {
			b.Fork("", total, c.sum())
		}
		if c.calls%25 == 0 {
			b.Call("", total, c.calls, nil)
		}
	case tick:
		c.now = number(call.Arguments)
	default: // a total, or an answer that holds one
		c.told = number(call.Arguments)
	}
	if call.Kind == 0 {
		b.Answer(call, c.sum())
	}
}

func (c *Counter) sum() []byte { return numbers(c.bytes) }

func (c *Counter) Save() []byte { return numbers(c.calls, c.bytes, c.told, c.now) }

func (c *Counter) Load(state []byte) {
	c.calls, c.bytes, c.told, c.now = number(state), number(state[8:]), number(state[16:]), number(state[24:])
}

func numbers(values ...int64) (data []byte) {
	for _, value := range values {
		data = binary.LittleEndian.AppendUint64(data, uint64(value))
	}
	return data
}

// number reads what numbers wrote first; 0 where there is none.
func number(data []byte) int64 {
	if len(data) < 8 {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(data))
}

func (c *Counter) First() []byte { return []byte("counter") }

func (c *Counter) Upgrade() {}

func main() {
	binding, err := Connect(&Counter{})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for now := range time.Tick(100 * time.Millisecond) {
			binding.Impulse(tick, numbers(now.Unix())) // nothing where this process does not lead
		}
	}()
	if err := binding.Run(); err != nil {
		log.Fatal(err)
	}
}
