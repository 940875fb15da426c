package main

func main() {
	serve(map[string]command{
		"producer":      startProducer,
		"send":          send,
		"request":       request,
		"transaction":   transaction,
		"push_consumer": startPush,
		"behave":        behave,
		"pull_consumer": startPull,
		"pull":          pull,
		"shutdown":      shutdown,
	})
}
