// A language binding of the AMBROSIA client protocol in one file: copy it beside your program.
//
// The program keeps its state, handles what is logged, and gives its state when it is asked. Connect finds the coordinator,
// Run calls the program, and returns when the coordinator is gone; the program ends then. The bytes are described in
// docs/formats/ambrosia.md.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
)

// Call is one logged call. Kind is 0 for one that wants an answer, 1 for a fork, 2 for an impulse; an Answer to a call of
// ours has Kind 17 (a value), 18 (nothing) or 19 (an exception), and no method.
type Call struct {
	Method    int64
	Kind      byte
	Arguments []byte
	From      string // kind 0: who called; an answer: who answered
	Sequence  int64  // kind 0 and answers: the number of the call
}

// App is what a program implements. State changes in Handle and First alone, and depends on what they are given and on
// nothing else: no clock, no chance, no order of a map, no goroutine.
type App interface {
	Handle(b *Binding, call Call) // one logged call, or an answer to one of ours
	Save() []byte                 // all state
	Load(state []byte)            // put all of it back
	First() []byte                // what the first message of the log holds; state is as the program was made
	Upgrade()                     // go over to the next version of the code, if there is one
}

// Binding is a connected program.
type Binding struct {
	app      App
	name     string
	mutex    sync.Mutex // held while a record is run: impulses of other goroutines come between records
	in       io.Reader
	out      *bufio.Writer
	attached map[string]bool
	pending  [][]byte // calls of the present record
	primary  bool
}

// Fork calls a method that gives no answer; to is the name of a service, "" is this one. Call it from Handle alone.
func (b *Binding) Fork(to string, method int64, arguments []byte) {
	b.emit(to, append([]byte{0}, append(append(zigzag(nil, method), 1), arguments...)...))
}

// Call calls a method whose answer comes to Handle with the same sequence. Call it from Handle alone.
func (b *Binding) Call(to string, method, sequence int64, arguments []byte) {
	body := append(zigzag([]byte{0}, method), 0)
	b.emit(to, append(zigzag(named(body, b.name), sequence), arguments...))
}

// Answer answers a call of kind 0, once. Call it from Handle alone.
func (b *Binding) Answer(call Call, result []byte) {
	b.emit(call.From, append(zigzag(named([]byte{1}, b.name), call.Sequence), result...))
}

// Impulse brings something in from outside: it is logged and comes back as a call. Call it from a goroutine of your own,
// never from Handle, where it would wait for itself. It gives false, and does nothing, where this process does not lead.
func (b *Binding) Impulse(method int64, arguments []byte) bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.primary {
		b.emit("", append([]byte{0}, append(append(zigzag(nil, method), 2), arguments...)...))
		b.flush()
	}
	return b.primary
}

// Connect connects to the two ports that the coordinator named.
func Connect(app App) (*Binding, error) {
	out, err := net.Dial("tcp", "127.0.0.1:"+os.Getenv("DEATHLESS_RECEIVE_PORT"))
	if err != nil {
		return nil, err
	}
	in, err := net.Dial("tcp", "127.0.0.1:"+os.Getenv("DEATHLESS_SEND_PORT"))
	if err != nil {
		return nil, err
	}
	return &Binding{app: app, name: os.Getenv("DEATHLESS_INSTANCE"), in: bufio.NewReaderSize(in, 1<<18),
		out: bufio.NewWriter(out), attached: map[string]bool{}}, nil
}

// Run serves until the coordinator is gone.
func (b *Binding) Run() error {
	for {
		var head [24]byte // committer, size, check bytes, sequence
		if _, err := io.ReadFull(b.in, head[:]); err != nil {
			return ended(err)
		}
		payload := make([]byte, binary.LittleEndian.Uint32(head[4:])-24)
		if _, err := io.ReadFull(b.in, payload); err != nil {
			return ended(err)
		}
		b.mutex.Lock()
		err := b.record(payload)
		b.flush()
		b.mutex.Unlock()
		if err != nil {
			return ended(err)
		}
	}
}

// ended says whether the coordinator is gone, which is no error.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// record runs the messages of one record, or of one batch.
func (b *Binding) record(data []byte) error {
	for len(data) > 0 {
		size, n := binary.Varint(data)
		message := data[n : n+int(size)]
		data = data[n+int(size):]
		kind, body := message[0], message[1:]
		switch kind {
		case 0, 6, 7: // RPC
			b.app.Handle(b, arrived(body))
		case 5, 13: // batches
			_, n := binary.Varint(body)
			if kind == 13 {
				_, more := binary.Varint(body[n:])
				n += more
			}
			if err := b.record(body[n:]); err != nil {
				return err
			}
		case 8: // Checkpoint: its bytes follow the record
			length, _ := binary.Varint(body)
			state := make([]byte, length)
			if _, err := io.ReadFull(b.in, state); err != nil {
				return err
			}
			b.app.Load(state)
		case 9: // our own InitialMessage
		case 2: // TakeCheckpoint
			b.checkpoint()
		case 10: // UpgradeTakeCheckpoint
			b.app.Upgrade()
			b.checkpoint()
			b.primary = true
		case 11: // TakeBecomingPrimaryCheckpoint, with which a service starts for the first time
			b.write(9, b.app.First())
			b.checkpoint()
			b.primary = true
		case 12: // UpgradeService
			b.app.Upgrade()
		case 15: // BecomingPrimary
			b.primary = true
		default:
			return fmt.Errorf("a message of type %d", kind)
		}
	}
	return nil
}

// checkpoint sends the state, behind everything that was emitted before.
func (b *Binding) checkpoint() {
	b.flush()
	state := b.app.Save()
	b.write(8, zigzag(nil, int64(len(state))))
	b.out.Write(state)
	b.out.Flush()
}

func (b *Binding) emit(to string, body []byte) {
	if to == b.name {
		to = ""
	}
	if to != "" && !b.attached[to] {
		b.attached[to] = true
		b.flush()
		b.write(1, []byte(to))
	}
	b.pending = append(b.pending, append(named(nil, to), body...))
}

// flush sends what was emitted; an error shows at the next read.
func (b *Binding) flush() {
	for _, rpc := range b.pending {
		b.write(0, rpc)
	}
	b.pending = b.pending[:0]
	b.out.Flush()
}

func (b *Binding) write(kind byte, data []byte) {
	b.out.Write(append(zigzag(nil, int64(len(data)+1)), kind))
	b.out.Write(data)
}

func arrived(body []byte) Call {
	call, rest := Call{Kind: body[0] + 16}, body[1:]
	if body[0] == 0 {
		method, n := binary.Varint(rest)
		call.Method, call.Kind, rest = method, rest[n], rest[n+1:]
	}
	if call.Kind != 1 && call.Kind != 2 {
		size, n := binary.Varint(rest)
		call.From, rest = string(rest[n:n+int(size)]), rest[n+int(size):]
		call.Sequence, n = binary.Varint(rest)
		rest = rest[n:]
	}
	call.Arguments = rest
	return call
}

// zigzag appends an integer as the protocol has them, which is how Go writes a signed one.
func zigzag(to []byte, value int64) []byte { return binary.AppendVarint(to, value) }

func named(to []byte, name string) []byte { return append(zigzag(to, int64(len(name))), name...) }
