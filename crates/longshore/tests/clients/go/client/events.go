package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Longer than anything takes.
const patience = time.Minute

// The events of the script's objects: one watch, which client-go resumes where it was cut.
type events struct {
	watch *watchtools.RetryWatcher
}

func watching(s *script, from string) *events {
	source := &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			return s.configMaps().Watch(ctx, options)
		},
	}
	retrying, err := watchtools.NewRetryWatcherWithContext(s.ctx, from, source)
	must(err)
	return &events{retrying}
}

// The next event has to be this one: none is left out, and none comes twice.
func (e *events) next(kind watch.EventType, name string) *corev1.ConfigMap {
	select {
	case event, ok := <-e.watch.ResultChan():
		check(ok, "expected %s of %s, found the end of the watch", kind, name)
		object, ok := event.Object.(*corev1.ConfigMap)
		check(ok, "expected %s of %s, found %v", kind, name, event)
		check(event.Type == kind && object.Name == name, "expected %s of %s, found %s of %s", kind, name, event.Type, object.Name)
		return object
	case <-time.After(2 * patience):
		fail("expected %s of %s, found no event", kind, name)
		return nil
	}
}

func (s *script) until(what string, holds func() bool) {
	err := wait.PollUntilContextTimeout(s.ctx, 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return holds(), nil
	})
	check(err == nil, "not in time: %s", what)
}
