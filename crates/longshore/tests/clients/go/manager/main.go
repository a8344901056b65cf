// A manager of controller-runtime, as operators are built: a controller of Greetings, with leader election, metrics
// and health, all in-cluster.
package main

import (
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var greetings = schema.GroupVersionKind{Group: "clients.longshore.dev", Version: "v1", Kind: "Greeting"}

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

func run() error {
	// Not `ctrl.GetConfig`: what a kubeconfig of the machine says must not matter.
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	// A look at all rights is many requests.
	config.QPS = -1
	namespace := os.Getenv("POD_NAMESPACE")
	m, err := ctrl.NewManager(config, manager.Options{
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics:                       server.Options{BindAddress: ":8080"},
		HealthProbeBindAddress:        ":8081",
		LeaderElection:                true,
		LeaderElectionID:              "manager",
		LeaderElectionReleaseOnCancel: true,
		RetryPeriod:                   ptr.To(500 * time.Millisecond),
	})
	if err != nil {
		return err
	}
	if err := m.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	direct, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	reconciler := &reconciler{
		client:   m.GetClient(),
		direct:   direct,
		recorder: m.GetEventRecorderFor("manager"),
		text:     os.Getenv("TEXT"),
		pod:      os.Getenv("POD_NAME"),
	}
	err = ctrl.NewControllerManagedBy(m).For(greeting()).Owns(&corev1.ConfigMap{}).Complete(reconciler)
	if err != nil {
		return err
	}
	return m.Start(ctrl.SetupSignalHandler())
}

func greeting() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(greetings)
	return object
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}
