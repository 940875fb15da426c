// The Go driver: client-go told what to do by JSON lines on standard input; see tests/interop/driver.py for the other end.
//
// A line in is {"id": n, "do": "command", ...}; a line out is {"id": n, "ok": value}, {"id": n, "error": {...}} or, unasked,
// {"event": "name", ...}. Commands run side by side. The end of standard input ends the process.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

type object = map[string]any

type command func(in *input) (any, error)

var (
	out      = os.Stdout
	outMutex sync.Mutex
)

func say(line object) {
	text, err := json.Marshal(line)
	if err != nil {
		text = []byte(fmt.Sprintf(`{"event": "broken", "text": %q}`, err.Error()))
	}
	outMutex.Lock()
	defer outMutex.Unlock()
	_, _ = out.Write(append(text, '\n'))
}

// serve answers each line until the end of standard input.
func serve(commands map[string]command) {
	// What a library prints must not get between our lines.
	os.Stdout = os.Stderr
	say(object{"event": "ready"})
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 1<<30)
	for in.Scan() {
		line := &input{}
		if err := json.Unmarshal(in.Bytes(), line); err != nil {
			fmt.Fprintln(os.Stderr, "not a request:", err)
			continue
		}
		go answer(line, commands)
	}
}

func answer(in *input, commands map[string]command) {
	do, known := commands[in.Do]
	if !known {
		say(object{"id": in.ID, "error": failure(fmt.Errorf("the Go driver has no command %s", in.Do))})
		return
	}
	value, err := do(in)
	if err != nil {
		say(object{"id": in.ID, "error": failure(err)})
		return
	}
	say(object{"id": in.ID, "ok": value})
}

// failure gives the error's type and text, and the broker's response code where it holds one.
func failure(err error) object {
	name := strings.TrimPrefix(reflect.TypeOf(err).String(), "*")
	said := object{"class": name, "message": err.Error(), "code": nil}
	var refused primitive.MQBrokerErr
	var refusedAt *primitive.MQBrokerErr
	if errors.As(err, &refused) {
		said["code"] = refused.ResponseCode
		said["message"] = refused.ErrorMessage
	} else if errors.As(err, &refusedAt) {
		said["code"] = refusedAt.ResponseCode
		said["message"] = refusedAt.ErrorMessage
	}
	return said
}
