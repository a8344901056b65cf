package main

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// A request that changes nothing, and the right that it needs.
type attempt struct {
	group, resource, verb string
	make                  func(context.Context) error
}

// The rights of this pod, in a fixed order: those of the requests that are not forbidden. What the server says of its
// rights beforehand has to be the same.
func rights(ctx context.Context, client kubernetes.Interface, namespace string) ([]any, error) {
	found := []any{}
	for _, it := range attempts(client, namespace) {
		err := it.make(ctx)
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%s %s: %w", it.verb, it.resource, err)
		}
		has := !apierrors.IsForbidden(err)
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Group: it.group, Resource: it.resource, Verb: it.verb, Name: "nothing",
			},
		}}
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("review of %s %s: %w", it.verb, it.resource, err)
		}
		if answer.Status.Allowed != has {
			return nil, fmt.Errorf("%s %s: the review says %t, the request %t", it.verb, it.resource, answer.Status.Allowed, has)
		}
		if has {
			found = append(found, it.verb+" "+it.resource)
		}
	}
	return found, nil
}

// Nothing has the name `nothing`: a request about it that is allowed finds that out, and one that creates is a dry run.
func attempts(client kubernetes.Interface, namespace string) []attempt {
	maps, secrets := client.CoreV1().ConfigMaps(namespace), client.CoreV1().Secrets(namespace)
	pods, leases := client.CoreV1().Pods(namespace), client.CoordinationV1().Leases(namespace)
	deployments := client.AppsV1().Deployments(namespace)
	get, few := metav1.GetOptions{}, metav1.ListOptions{Limit: 1}
	dry := []string{metav1.DryRunAll}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "nothing"}}
	return []attempt{
		{"", "configmaps", "get", func(ctx context.Context) error {
			_, err := maps.Get(ctx, "nothing", get)
			return err
		}},
		{"", "configmaps", "create", func(ctx context.Context) error {
			_, err := maps.Create(ctx, object, metav1.CreateOptions{DryRun: dry})
			return err
		}},
		{"", "configmaps", "update", func(ctx context.Context) error {
			_, err := maps.Update(ctx, object, metav1.UpdateOptions{DryRun: dry})
			return err
		}},
		{"", "configmaps", "delete", func(ctx context.Context) error {
			return maps.Delete(ctx, "nothing", metav1.DeleteOptions{DryRun: dry})
		}},
		{"", "secrets", "get", func(ctx context.Context) error {
			_, err := secrets.Get(ctx, "nothing", get)
			return err
		}},
		{"", "pods", "list", func(ctx context.Context) error {
			_, err := pods.List(ctx, few)
			return err
		}},
		{"coordination.k8s.io", "leases", "get", func(ctx context.Context) error {
			_, err := leases.Get(ctx, "nothing", get)
			return err
		}},
		{"coordination.k8s.io", "leases", "delete", func(ctx context.Context) error {
			return leases.Delete(ctx, "nothing", metav1.DeleteOptions{DryRun: dry})
		}},
		{"apps", "deployments", "list", func(ctx context.Context) error {
			_, err := deployments.List(ctx, few)
			return err
		}},
	}
}
