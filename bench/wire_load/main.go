// A load generator for the binary protocol, compiled: what pgbench is to PostgreSQL. The twin of bench/load.py.
//
// One thread, one epoll, many sessions; every call must be answered once, in order and with OK. What is sent comes
// encoded from bench/load.py on standard input, so that the protocol is written down in one place:
//
//	{"hello": base64 of a HELLO packet, "messages": [base64 of a CALL, ...all of one length]}
//
//	wire_load ADDRESS CLIENTS WINDOW SECONDS    prints one line of JSON, as bench/load.py does
//
// It needs nothing but the standard library. Does not: reconnect, or follow a takeover.
package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"syscall"
	"time"
)

const (
	registerKind     = 16
	registeredKind   = 17
	batchKind        = 18
	repliesKind      = 19
	batchRefusedKind = 20
	prefixBytes      = 5
	runBytes         = 32
	repliesHeadBytes = 16
)

var little = binary.LittleEndian

func fail(what string, arguments ...any) {
	fmt.Fprintf(os.Stderr, what+"\n", arguments...)
	os.Exit(1)
}

func check(err error) {
	if err != nil {
		fail("%v", err)
	}
}

type given struct {
	Hello    []byte   `json:"hello"`
	Messages [][]byte `json:"messages"`
}

type sent struct {
	last uint64
	at   time.Time
}

// caller is one session on one connection, with a window of calls on their way.
type caller struct {
	descriptor int
	session    uint64
	next       uint64 // seq of the next call to send
	answered   uint64 // replies up to this seq are here
	onTheirWay []sent
	in         []byte // received and not taken apart yet
	out        []byte
}

var (
	messages  [][]byte
	latencies []float64
	buffer    = make([]byte, 1<<20)
)

func packet(kind byte, body []byte) []byte {
	data := make([]byte, prefixBytes, prefixBytes+len(body))
	little.PutUint32(data, uint32(len(body)+1))
	data[4] = kind
	return append(data, body...)
}

func connect(address string, hello []byte, number uint64) *caller {
	connection, err := net.Dial("tcp", address)
	check(err)
	file, err := connection.(*net.TCPConn).File()
	check(err)
	connection.Close()
	descriptor := int(file.Fd()) // blocking from here on
	check(syscall.SetsockoptInt(descriptor, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1))
	made := &caller{descriptor: descriptor, next: 1}
	nonce := make([]byte, 16)
	little.PutUint64(nonce, number)
	little.PutUint64(nonce[8:], uint64(time.Now().UnixNano()))
	made.write(hello)
	made.write(packet(registerKind, nonce))
	for made.session == 0 {
		made.receive()
	}
	files = append(files, file)
	return made
}

var files []*os.File // kept, or their descriptors would be closed

func (c *caller) write(data []byte) {
	for len(data) > 0 {
		count, err := syscall.Write(c.descriptor, data)
		if err == syscall.EINTR {
			continue
		}
		check(err)
		data = data[count:]
	}
}

func (c *caller) send(count uint64) {
	size := uint64(len(messages[0]))
	length := prefixBytes + runBytes + count*(4+size)
	if uint64(cap(c.out)) < length {
		c.out = make([]byte, length)
	}
	data := c.out[:length]
	little.PutUint32(data, uint32(length-4))
	data[4] = batchKind
	little.PutUint64(data[5:], c.session)
	little.PutUint64(data[13:], c.next)
	little.PutUint64(data[21:], c.next-1) // all before it are acknowledged
	little.PutUint32(data[29:], uint32(count))
	little.PutUint32(data[33:], 0)
	ends, blob := data[prefixBytes+runBytes:], data[prefixBytes+runBytes+4*count:]
	for i := uint64(0); i < count; i++ {
		little.PutUint32(ends[4*i:], uint32((i+1)*size))
		copy(blob[i*size:], messages[(c.next+i)%uint64(len(messages))])
	}
	c.next += count
	c.onTheirWay = append(c.onTheirWay, sent{c.next - 1, time.Now()})
	c.write(data)
}

// begin fills the window, in two halves, so that one is run while the other is on its way.
func (c *caller) begin(window uint64) {
	half := max(1, window/2)
	c.send(half)
	if window > half {
		c.send(window - half)
	}
}

// receive takes what is there in. Gives the count of replies.
func (c *caller) receive() uint64 {
	count, err := syscall.Read(c.descriptor, buffer)
	if err == syscall.EINTR {
		return 0
	}
	check(err)
	if count == 0 {
		fail("the service closed the connection")
	}
	data := buffer[:count]
	if len(c.in) > 0 {
		c.in = append(c.in, data...)
		data = c.in
	}
	var got uint64
	for len(data) >= prefixBytes {
		length := int(little.Uint32(data)) + 4
		if len(data) < length {
			break
		}
		got += c.take(data[4], data[prefixBytes:length])
		data = data[length:]
	}
	c.in = append(c.in[:0], data...)
	return got
}

func (c *caller) take(kind byte, body []byte) uint64 {
	switch kind {
	case repliesKind:
		return c.replies(body)
	case registeredKind:
		c.session = registered(body)
	case batchRefusedKind:
		fail("refused: %q", body)
	}
	return 0
}

// replies checks that every reply is the next one and is OK.
func (c *caller) replies(body []byte) uint64 {
	count := uint64(little.Uint32(body[8:]))
	seqs := body[repliesHeadBytes:]
	ends, blob := seqs[8*count:], seqs[12*count:]
	start := uint32(0)
	for i := uint64(0); i < count; i++ {
		if seq := little.Uint64(seqs[8*i:]); seq != c.answered+1 {
			fail("reply %d behind %d", seq, c.answered)
		}
		if blob[start] != 0 {
			fail("a call was answered with an error: %q", blob[start:little.Uint32(ends[4*i:])])
		}
		start = little.Uint32(ends[4*i:])
		c.answered++
	}
	return count
}

// registered gives the session of a REGISTERED body: a msgpack array of the nonce (16 bytes) and an integer.
func registered(body []byte) uint64 {
	if len(body) < 20 || body[0] != 0x92 || body[1] != 0xc4 || body[2] != 16 {
		fail("REGISTERED can't be read: %x", body)
	}
	number := body[19:]
	switch kind := number[0]; {
	case kind < 0x80:
		return uint64(kind)
	case kind == 0xcc:
		return uint64(number[1])
	case kind == 0xcd:
		return uint64(binary.BigEndian.Uint16(number[1:]))
	case kind == 0xce:
		return uint64(binary.BigEndian.Uint32(number[1:]))
	case kind == 0xcf:
		return binary.BigEndian.Uint64(number[1:])
	}
	fail("REGISTERED can't be read: %x", body)
	return 0
}

func (c *caller) readable(goOn bool) uint64 {
	got := c.receive()
	if got == 0 {
		return 0
	}
	now := time.Now()
	done := 0
	for done < len(c.onTheirWay) && c.onTheirWay[done].last <= c.answered {
		latencies = append(latencies, float64(now.Sub(c.onTheirWay[done].at).Nanoseconds())/1000)
		done++
	}
	c.onTheirWay = c.onTheirWay[:copy(c.onTheirWay, c.onTheirWay[done:])]
	if goOn {
		c.send(got)
	}
	return got
}

func processor() float64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func main() {
	if len(os.Args) != 5 {
		fail("usage: wire_load ADDRESS CLIENTS WINDOW SECONDS")
	}
	clients, err := strconv.Atoi(os.Args[2])
	check(err)
	window, err := strconv.ParseUint(os.Args[3], 10, 32)
	check(err)
	seconds, err := strconv.ParseFloat(os.Args[4], 64)
	check(err)
	var what given
	check(json.NewDecoder(os.Stdin).Decode(&what))
	messages = what.Messages
	latencies = make([]float64, 0, 1<<20)
	callers := make([]*caller, clients)
	poll, err := syscall.EpollCreate1(0)
	check(err)
	for i := range callers {
		callers[i] = connect(os.Args[1], what.Hello, uint64(i))
		event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(i)}
		check(syscall.EpollCtl(poll, syscall.EPOLL_CTL_ADD, callers[i].descriptor, &event))
	}
	debug.SetGCPercent(-1) // what is made from here on is small
	events := make([]syscall.EpollEvent, 256)
	wait := func(goOn bool) (got uint64) {
		count, err := syscall.EpollWait(poll, events, 1000)
		if err == syscall.EINTR {
			return 0
		}
		check(err)
		for _, event := range events[:count] {
			got += callers[event.Fd].readable(goOn)
		}
		return got
	}
	began, used := time.Now(), processor()
	for _, each := range callers {
		each.begin(window)
	}
	var calls uint64
	for time.Since(began).Seconds() < seconds {
		calls += wait(true)
	}
	took := time.Since(began).Seconds()
	used = processor() - used
	for _, each := range callers {
		for each.answered < each.next-1 {
			wait(false)
		}
	}
	sort.Float64s(latencies)
	if len(latencies) == 0 {
		latencies = []float64{0}
	}
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"calls":        calls,
		"seconds":      took,
		"per_second":   float64(calls) / took,
		"p50_us":       latencies[len(latencies)/2],
		"p99_us":       latencies[len(latencies)*99/100],
		"worst_us":     latencies[len(latencies)-1],
		"processor_us": used / float64(max(calls, 1)) * 1e6,
	}))
}
