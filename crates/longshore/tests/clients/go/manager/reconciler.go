package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// How soon a changed role is noticed: no watch tells it.
const again = time.Second

type reconciler struct {
	client   client.Client
	direct   kubernetes.Interface
	recorder record.EventRecorder
	// What greets.
	text string
	// Which replica this is.
	pod string
}

// A Greeting has a ConfigMap of its name with the greeting. Its status tells who wrote it, what went wrong, and what
// this pod may do.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := greeting()
	if err := r.client.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if object.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, nil
	}
	who, _, err := unstructured.NestedString(object.Object, "spec", "who")
	if err != nil {
		return ctrl.Result{}, err
	}
	failure := ""
	if err := r.greet(ctx, object, who); err != nil {
		failure = err.Error()
		if !apierrors.IsForbidden(err) {
			return ctrl.Result{}, err
		}
	}
	rights, err := rights(ctx, r.direct, request.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	status := map[string]any{
		"by":      r.pod,
		"text":    r.text,
		"failure": failure,
		"rights":  rights,
	}
	if equality.Semantic.DeepEqual(object.Object["status"], any(status)) {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	before := object.DeepCopy()
	object.Object["status"] = status
	if err := r.client.Status().Patch(ctx, object, client.MergeFrom(before)); err != nil {
		return ctrl.Result{}, err
	}
	r.recorder.Event(object, corev1.EventTypeNormal, "Greeted", r.text)
	return ctrl.Result{RequeueAfter: again}, nil
}

func (r *reconciler) greet(ctx context.Context, owner *unstructured.Unstructured, who string) error {
	wanted := &corev1.ConfigMap{ObjectMeta: named(owner.GetNamespace(), owner.GetName())}
	_, err := controllerutil.CreateOrUpdate(ctx, r.client, wanted, func() error {
		wanted.Data = map[string]string{"greeting": r.text + ", " + who}
		return controllerutil.SetControllerReference(owner, wanted, r.client.Scheme())
	})
	return err
}
