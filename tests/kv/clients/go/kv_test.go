// Everyday uses of go-redis against `terrace kv`: KV_ADDRESS names the server.
package kv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func client(t *testing.T, protocol int) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("KV_ADDRESS"), Protocol: protocol, ReadTimeout: 20 * time.Second})
	t.Cleanup(func() { client.Close() })
	if err := client.FlushDB(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	return client
}

func eachProtocol(t *testing.T, test func(*testing.T, *redis.Client)) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) { test(t, client(t, protocol)) })
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func TestEveryTypeReadsBack(t *testing.T) {
	eachProtocol(t, func(t *testing.T, c *redis.Client) {
		must[string](t)(c.Set(ctx, "text", "value", time.Minute).Result())
		must[int64](t)(c.HSet(ctx, "hash", "a", 1, "b", 2).Result())
		must[int64](t)(c.RPush(ctx, "list", 1, 2, 3).Result())
		must[int64](t)(c.SAdd(ctx, "set", "a", "b").Result())
		must[int64](t)(c.ZAdd(ctx, "zset", redis.Z{Score: 1.5, Member: "a"}, redis.Z{Score: 2, Member: "b"}).Result())
		id := must[string](t)(c.XAdd(ctx, &redis.XAddArgs{Stream: "stream", Values: map[string]any{"k": "v"}}).Result())
		if got := must[map[string]string](t)(c.HGetAll(ctx, "hash").Result()); len(got) != 2 || got["b"] != "2" {
			t.Fatal(got)
		}
		if got := must[[]redis.Z](t)(c.ZRangeWithScores(ctx, "zset", 0, -1).Result()); got[0].Score != 1.5 {
			t.Fatal(got)
		}
		if got := must[[]redis.XMessage](t)(c.XRange(ctx, "stream", "-", "+").Result()); got[0].ID != id {
			t.Fatal(got)
		}
		if got := must[time.Duration](t)(c.TTL(ctx, "text").Result()); got <= 0 {
			t.Fatal(got)
		}
		if _, err := c.Get(ctx, "missing").Result(); !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		if err := c.LPush(ctx, "text", 1).Err(); err == nil || err.Error()[:9] != "WRONGTYPE" {
			t.Fatal(err)
		}
	})
}

func TestOptimisticTransactionsLoseNoIncrement(t *testing.T) {
	eachProtocol(t, func(t *testing.T, c *redis.Client) {
		var all sync.WaitGroup
		increment := func(tx *redis.Tx) error {
			n, err := tx.Get(ctx, "n").Int()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Set(ctx, "n", n+1, 0)
				return nil
			})
			return err
		}
		for range 8 {
			all.Add(1)
			go func() {
				defer all.Done()
				for done := 0; done < 50; {
					if c.Watch(ctx, increment, "n") == nil {
						done++
					}
				}
			}()
		}
		all.Wait()
		if n := must[int](t)(c.Get(ctx, "n").Int()); n != 400 {
			t.Fatal(n)
		}
	})
}

func TestSubscribersGetEveryMessageInOrder(t *testing.T) {
	eachProtocol(t, func(t *testing.T, c *redis.Client) {
		subscription := c.PSubscribe(ctx, "news.*")
		defer subscription.Close()
		must[any](t)(subscription.Receive(ctx))
		for n := range 500 {
			must[int64](t)(c.Publish(ctx, "news.a", n).Result())
		}
		for n := range 500 {
			message := must[*redis.Message](t)(subscription.ReceiveMessage(ctx))
			if message.Payload != fmt.Sprint(n) {
				t.Fatal(message)
			}
		}
	})
}

func TestScriptsAndFunctionsRun(t *testing.T) {
	eachProtocol(t, func(t *testing.T, c *redis.Client) {
		script := redis.NewScript("return redis.call('INCRBY', KEYS[1], ARGV[1])")
		if n := must[int64](t)(script.Run(ctx, c, []string{"n"}, 5).Int64()); n != 5 {
			t.Fatal(n)
		}
		library := "#!lua name=lib\nredis.register_function('double', function(_, args) return args[1] * 2 end)"
		must[string](t)(c.FunctionLoadReplace(ctx, library).Result())
		if n := must[int64](t)(c.FCall(ctx, "double", nil, 21).Int64()); n != 42 {
			t.Fatal(n)
		}
	})
}

func TestConsumersOfAGroupGetEachEntryOnce(t *testing.T) {
	eachProtocol(t, func(t *testing.T, c *redis.Client) {
		must[string](t)(c.XGroupCreateMkStream(ctx, "s", "g", "0").Result())
		for n := range 200 {
			must[string](t)(c.XAdd(ctx, &redis.XAddArgs{Stream: "s", Values: []any{"n", n}}).Result())
		}
		var lock sync.Mutex
		var all sync.WaitGroup
		seen := map[string]bool{}
		for n := range 4 {
			all.Add(1)
			go func() {
				defer all.Done()
				for {
					read := c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: fmt.Sprint(n), Streams: []string{"s", ">"}, Count: 7, Block: -1})
					streams, err := read.Result()
					if err != nil || len(streams) == 0 {
						return
					}
					for _, message := range streams[0].Messages {
						lock.Lock()
						if seen[message.ID] {
							t.Error("twice", message.ID)
						}
						seen[message.ID] = true
						lock.Unlock()
						c.XAck(ctx, "s", "g", message.ID)
					}
				}
			}()
		}
		all.Wait()
		if len(seen) != 200 {
			t.Fatal(len(seen))
		}
		if left := must[*redis.XPending](t)(c.XPending(ctx, "s", "g").Result()); left.Count != 0 {
			t.Fatal(left)
		}
	})
}

func TestUsersAreHeldToTheirRights(t *testing.T) {
	c := client(t, 3)
	must[string](t)(c.Do(ctx, "ACL", "SETUSER", "go", "on", ">pw", "~own:*", "+@all").Text())
	own := redis.NewClient(&redis.Options{Addr: os.Getenv("KV_ADDRESS"), Username: "go", Password: "pw"})
	defer own.Close()
	must[string](t)(own.Set(ctx, "own:1", 1, 0).Result())
	if err := own.Set(ctx, "other", 1, 0).Err(); err == nil || err.Error()[:6] != "NOPERM" {
		t.Fatal(err)
	}
}
