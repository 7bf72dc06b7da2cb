// Loads etcd through its own Go client, as a peer of the figures. Prints one line of JSON.
//
//	load ENDPOINT put CLIENTS SECONDS   puts of 64 bytes, each client one at a time
//	load ENDPOINT takeover COUNT        a key held under a lease of 1 s: from the holder's death to its successor's put
//
// In `takeover` the holder stops keeping its lease alive at a moment of no relation to the last renewal; the successor
// watches the key and takes it, in a transaction, when it is gone. The time goes from the last renewal answered before
// the death (the last good reply) to the answer to the successor's transaction (the first good reply).
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func connect(endpoint string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second})
	check(err)
	return client
}

func put(endpoint string, clients int, seconds float64) map[string]any {
	value := strings.Repeat("x", 64)
	var lock sync.Mutex
	var group sync.WaitGroup
	var all []float64
	connections := make([]*clientv3.Client, clients)
	for i := range connections {
		connections[i] = connect(endpoint)
		_, err := connections[i].Put(context.Background(), "warm", value)
		check(err)
	}
	began := time.Now()
	end := began.Add(time.Duration(seconds * float64(time.Second)))
	for i := range connections {
		group.Add(1)
		go func(client *clientv3.Client, number int) {
			defer group.Done()
			var took []float64
			for n := 0; time.Now().Before(end); n++ {
				sent := time.Now()
				_, err := client.Put(context.Background(), fmt.Sprintf("key%04d", (number*100+n)%1000), value)
				check(err)
				took = append(took, float64(time.Since(sent).Nanoseconds())/1000)
			}
			lock.Lock()
			all = append(all, took...)
			lock.Unlock()
		}(connections[i], i)
	}
	group.Wait()
	took := time.Since(began).Seconds()
	sort.Float64s(all)
	return map[string]any{
		"per_second": float64(len(all)) / took,
		"p50_us":     all[len(all)/2],
		"p99_us":     all[len(all)*99/100],
	}
}

func takeOnce(holder, successor *clientv3.Client) (float64, int64) {
	background := context.Background()
	lease, err := holder.Grant(background, 1)
	check(err)
	_, err = holder.Put(background, "leader", "holder", clientv3.WithLease(lease.ID))
	check(err)
	watch := successor.Watch(background, "leader")
	death := time.Now().Add(2*time.Second + time.Duration(rand.Int63n(int64(time.Second))))
	last := time.Now()
	for time.Now().Before(death) {
		_, err = holder.KeepAliveOnce(background, lease.ID)
		check(err)
		last = time.Now()
		pause := time.Duration(lease.TTL) * time.Second / 3 // as etcd's own client does
		if rest := time.Until(death); rest < pause {
			pause = rest
		}
		time.Sleep(pause)
	}
	mine, err := successor.Grant(background, 60)
	check(err)
	for response := range watch {
		for _, event := range response.Events {
			if event.Type != clientv3.EventTypeDelete {
				continue
			}
			answer, err := successor.Txn(background).
				If(clientv3.Compare(clientv3.CreateRevision("leader"), "=", 0)).
				Then(clientv3.OpPut("leader", "successor", clientv3.WithLease(mine.ID))).Commit()
			check(err)
			if answer.Succeeded {
				took := time.Since(last).Seconds() * 1000
				_, err = successor.Revoke(background, mine.ID)
				check(err)
				return took, lease.TTL
			}
		}
	}
	return 0, 0
}

func main() {
	endpoint, what := os.Args[1], os.Args[2]
	number, err := strconv.Atoi(os.Args[3])
	check(err)
	var result map[string]any
	switch what {
	case "put":
		seconds, err := strconv.ParseFloat(os.Args[4], 64)
		check(err)
		result = put(endpoint, number, seconds)
	case "takeover":
		var all []float64
		var ttl int64
		holder, successor := connect(endpoint), connect(endpoint)
		for i := 0; i < number; i++ {
			took, granted := takeOnce(holder, successor)
			all, ttl = append(all, took), granted
		}
		sort.Float64s(all)
		result = map[string]any{"p50_ms": all[len(all)/2], "worst_ms": all[len(all)-1], "granted_ttl_s": ttl}
	}
	check(json.NewEncoder(os.Stdout).Encode(result))
}
