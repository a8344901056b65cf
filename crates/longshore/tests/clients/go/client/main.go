// The script of client-go: each step is checked, and told on a line of its own. Its last line counts them.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The kubeconfig is the first argument, the namespace the second.
func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	must(err)
	client, err := kubernetes.NewForConfig(config)
	must(err)
	s := &script{ctx: ctx, config: config, client: client, namespace: os.Args[2]}

	s.creates()
	s.lists()
	s.watches()
	s.watchesOverARestart()
	s.patches()
	s.applies()
	s.executes()
	s.definesAKind()
	s.deletes()
	fmt.Printf("client-go: %d steps\n", s.steps)
}

type script struct {
	ctx       context.Context
	config    *rest.Config
	client    kubernetes.Interface
	namespace string
	watch     *events
	steps     int
}

// Tells that a step was as it had to be.
func (s *script) done(step string) {
	s.steps++
	fmt.Println("ok:", step)
}

// Ends the script where an error is the last thing that was expected.
func must(err error) {
	if err != nil {
		fail("expected no error, found %v", err)
	}
}

func check(holds bool, format string, values ...any) {
	if !holds {
		fail(format, values...)
	}
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, "client-go: "+format+"\n", values...)
	os.Exit(1)
}
