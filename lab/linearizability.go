// Reads a history of operations, one JSON object a line, and says whether it is linearizable: the checker is porcupine.
//
// A line: {"client": 3, "call": 12, "return": 40, "op": "cas", "key": "r1", "args": [1, 2], "result": true}
// Times are microseconds of one clock; return -1: nobody knows whether the operation was done. Objects are judged one by
// one: a register ("r...": read, write, cas), and a bank ("b...": transfer of an amount from one account to another,
// total balances by balances).
//
// Prints one line "N operations, M objects: linearizable" and exits with 0; with 1 it names the objects whose history no
// order explains, with 2 it could not decide within its time.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const accounts = 8
const beginsWith = 100

type line struct {
	Client int
	Call   int64
	Return int64
	Op     string
	Key    string
	Args   []int64
	Result any
}

type bank [accounts]int64

func register() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return int64(0) },
		Step: func(state, input, output any) (bool, any) {
			value, asked := state.(int64), input.(line)
			unknown := asked.Return < 0
			switch asked.Op {
			case "read":
				return unknown || output == float64(value), value
			case "write":
				return true, asked.Args[0]
			default: // cas
				done := value == asked.Args[0]
				if !unknown && output != done {
					return false, value
				}
				if done {
					return true, asked.Args[1]
				}
				return true, value
			}
		},
	}
}

func bankModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any {
			var b bank
			for i := range b {
				b[i] = beginsWith
			}
			return b
		},
		Step: func(state, input, output any) (bool, any) {
			b, asked := state.(bank), input.(line)
			unknown := asked.Return < 0
			if asked.Op == "total" {
				if unknown {
					return true, b
				}
				told, ok := output.([]any)
				if !ok || len(told) != accounts {
					return false, b
				}
				for i, each := range told {
					if each != float64(b[i]) {
						return false, b
					}
				}
				return true, b
			}
			from, to, amount := asked.Args[0], asked.Args[1], asked.Args[2]
			done := b[from] >= amount
			if !unknown && output != done {
				return false, b
			}
			if done {
				b[from] -= amount
				b[to] += amount
			}
			return true, b
		},
		Equal: func(a, b any) bool { return reflect.DeepEqual(a, b) },
	}
}

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	objects := map[string][]porcupine.Operation{}
	count := 0
	reader := bufio.NewScanner(file)
	reader.Buffer(make([]byte, 1<<20), 1<<24)
	for reader.Scan() {
		var each line
		if err := json.Unmarshal(reader.Bytes(), &each); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		end := each.Return
		if end < 0 {
			end = math.MaxInt64
		}
		objects[each.Key] = append(objects[each.Key], porcupine.Operation{
			ClientId: each.Client, Input: each, Call: each.Call, Output: each.Result, Return: end,
		})
		count++
	}
	keys := make([]string, 0, len(objects))
	for key := range objects {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	status := 0
	for _, key := range keys {
		model := register()
		if strings.HasPrefix(key, "b") {
			model = bankModel()
		}
		switch porcupine.CheckOperationsTimeout(model, objects[key], 10*time.Minute) {
		case porcupine.Illegal:
			fmt.Printf("object %s: no order explains its %d operations\n", key, len(objects[key]))
			status = 1
		case porcupine.Unknown:
			fmt.Printf("object %s: not decided\n", key)
			status = max(status, 2)
		}
	}
	if status == 0 {
		fmt.Printf("%d operations, %d objects: linearizable\n", count, len(keys))
	}
	os.Exit(status)
}
