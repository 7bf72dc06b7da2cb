// Orders: a program that takes orders, has the Python service `till` paid for each of them, and keeps a book. See demo.py,
// which builds it beside a copy of ../go/ambrosia.go; orders.py is the same in Python.
//
// An order is placed by method 1 with "number customer cents", by somebody who waits for an answer. The program tells
// itself of it (2), calls the till, and answers once the till has. The till tells the program of each payment (3) and, when
// somebody wants money back, asks it for the amount (4). Method 5 gives lines of the book, from one on.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"strings"
)

const (
	place   = 1
	counted = 2
	receipt = 3
	refund  = 4
	book    = 5

	linesMax = 2000 // of the book, in one answer
	value    = 17   // Kind of an answer that holds one
)

// Order is one of the book. It counts everything, so that what comes twice or never shows.
type Order struct {
	Number                                           int64
	Customer, Cents                                  string
	Placed, Counted, Paid, Failed, Receipts, Refunds int
	Caller                                           string // who waits for the answer
	Sequence                                         int64
}

// Orders is the program's state; byNumber is made from Book.
type Orders struct {
	Book     []*Order
	byNumber map[int64]*Order
}

func (o *Orders) order(text string) *Order {
	var number int64
	fmt.Sscan(text, &number)
	found := o.byNumber[number]
	if found == nil {
		found = &Order{Number: number, Customer: "-", Cents: "0"}
		o.byNumber[number] = found
		o.Book = append(o.Book, found)
	}
	return found
}

func (o *Orders) Handle(b *Binding, call Call) {
	text := string(call.Arguments)
	if call.Kind > 2 { // the till's answer
		o.answered(b, call)
		return
	}
	switch call.Method {
	case place:
		order := o.order(text)
		fmt.Sscan(text, &order.Number, &order.Customer, &order.Cents)
		order.Placed++
		order.Caller, order.Sequence = call.From, call.Sequence
		b.Fork("", counted, call.Arguments)
		b.Call("till/"+order.Customer, place, order.Number, call.Arguments)
	case counted:
		o.order(text).Counted++
	case receipt:
		o.order(text).Receipts++
	case refund:
		order := o.order(text)
		order.Refunds++
		b.Answer(call, []byte(order.Cents))
	case book:
		b.Answer(call, []byte(o.lines(text)))
	}
}

func (o *Orders) answered(b *Binding, answer Call) {
	order := o.order(fmt.Sprint(answer.Sequence))
	if answer.Kind == value {
		order.Paid++
	} else {
		order.Failed++
	}
	b.Answer(Call{From: order.Caller, Sequence: order.Sequence}, answer.Arguments)
}

func (o *Orders) lines(from string) string {
	var first int
	fmt.Sscan(from, &first)
	lines := []string{}
	for _, each := range o.Book[min(first, len(o.Book)):min(first+linesMax, len(o.Book))] {
		lines = append(lines, fmt.Sprintf("%d %s %s %d %d %d %d %d %d", each.Number, each.Customer, each.Cents,
			each.Placed, each.Counted, each.Paid, each.Failed, each.Receipts, each.Refunds))
	}
	return strings.Join(lines, "\n")
}

func (o *Orders) Save() []byte {
	state, err := json.Marshal(o.Book)
	if err != nil {
		log.Fatal(err)
	}
	return state
}

func (o *Orders) Load(state []byte) {
	if err := json.Unmarshal(state, &o.Book); err != nil {
		log.Fatal(err)
	}
	for _, each := range o.Book {
		o.byNumber[each.Number] = each
	}
}

func (o *Orders) First() []byte { return nil }

func (o *Orders) Upgrade() {}

func main() {
	binding, err := Connect(&Orders{byNumber: map[int64]*Order{}})
	if err != nil {
		log.Fatal(err)
	}
	if err := binding.Run(); err != nil {
		log.Fatal(err)
	}
}
