package main

import (
	"bytes"
	"encoding/json"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
)

// The objects of the script have this label; those of the test that runs it have it too.
const selector = "script=yes"

// Where the script and the test that runs it tell each other how far they are.
const progress = "progress"

func (s *script) configMaps() typed.ConfigMapInterface {
	return s.client.CoreV1().ConfigMaps(s.namespace)
}

func (s *script) configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"script": "yes"}},
		Data:       map[string]string{"value": value},
	}
}

func (s *script) creates() {
	for _, name := range []string{"a", "b"} {
		created, err := s.configMaps().Create(s.ctx, s.configMap(name, "1"), metav1.CreateOptions{})
		must(err)
		check(created.UID != "" && created.ResourceVersion != "", "expected a uid and a version, found %v", created)
	}
	_, err := s.configMaps().Create(s.ctx, s.configMap("a", "2"), metav1.CreateOptions{})
	check(apierrors.IsAlreadyExists(err), "expected AlreadyExists, found %v", err)
	s.done("create")
}

func (s *script) lists() {
	var names []string
	options := metav1.ListOptions{LabelSelector: selector, Limit: 1}
	for {
		page, err := s.configMaps().List(s.ctx, options)
		must(err)
		check(len(page.Items) == 1, "expected one item a page, found %d", len(page.Items))
		names = append(names, page.Items[0].Name)
		if page.Continue == "" {
			break
		}
		options.Continue = page.Continue
	}
	check(len(names) == 2 && names[0] == "a" && names[1] == "b", "expected a and b, found %v", names)
	s.done("list")
}

func (s *script) watches() {
	list, err := s.configMaps().List(s.ctx, metav1.ListOptions{LabelSelector: selector})
	must(err)
	s.watch = watching(s, list.ResourceVersion)
	_, err = s.configMaps().Create(s.ctx, s.configMap("c", "1"), metav1.CreateOptions{})
	must(err)
	s.watch.next(watch.Added, "c")
	s.done("watch")
}

// The test restarts the server, and makes an object afterwards: the same watch tells it, and nothing a second time.
func (s *script) watchesOverARestart() {
	mark := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: progress}, Data: map[string]string{"phase": "watching"}}
	_, err := s.configMaps().Create(s.ctx, mark, metav1.CreateOptions{})
	must(err)
	s.watch.next(watch.Added, "after-restart")
	s.done("watch over a restart")
}

func (s *script) patches() {
	for _, it := range []struct {
		kind types.PatchType
		body string
	}{
		{types.StrategicMergePatchType, `{"data": {"strategic": "1"}}`},
		{types.MergePatchType, `{"data": {"merge": "1", "strategic": null}}`},
		{types.JSONPatchType, `[{"op": "test", "path": "/data/merge", "value": "1"}, {"op": "add", "path": "/data/json", "value": "1"}]`},
	} {
		patched, err := s.configMaps().Patch(s.ctx, "a", it.kind, []byte(it.body), metav1.PatchOptions{})
		must(err)
		seen := s.watch.next(watch.Modified, "a")
		check(seen.ResourceVersion == patched.ResourceVersion, "expected %s, found %s", patched.ResourceVersion, seen.ResourceVersion)
	}
	found, err := s.configMaps().Get(s.ctx, "a", metav1.GetOptions{})
	must(err)
	check(data(found) == `{"json":"1","merge":"1","value":"1"}`, "found %s", data(found))
	failed := []byte(`[{"op": "test", "path": "/data/merge", "value": "2"}]`)
	_, err = s.configMaps().Patch(s.ctx, "a", types.JSONPatchType, failed, metav1.PatchOptions{})
	check(apierrors.IsInvalid(err), "expected Invalid, found %v", err)
	found.ResourceVersion = "1"
	_, err = s.configMaps().Update(s.ctx, found, metav1.UpdateOptions{})
	check(apierrors.IsConflict(err), "expected Conflict, found %v", err)
	s.done("patch")
}

func data(object *corev1.ConfigMap) string {
	text, err := json.Marshal(object.Data)
	must(err)
	return string(text)
}

// As kubectl does it without the help of the server: of what was applied before, what is applied, and what is there.
// The server's own way is refused, and says with what.
func (s *script) applies() {
	s.apply(`{"kept": "1", "removed": "1"}`)
	s.watch.next(watch.Added, "applied")
	foreign := []byte(`{"data": {"foreign": "1"}}`)
	_, err := s.configMaps().Patch(s.ctx, "applied", types.MergePatchType, foreign, metav1.PatchOptions{})
	must(err)
	s.watch.next(watch.Modified, "applied")
	s.apply(`{"kept": "2"}`)
	seen := s.watch.next(watch.Modified, "applied")
	check(data(seen) == `{"foreign":"1","kept":"2"}`, "found %s", data(seen))

	wanted := corev1ac.ConfigMap("applied", s.namespace).WithData(map[string]string{"kept": "3"})
	_, err = s.configMaps().Apply(s.ctx, wanted, metav1.ApplyOptions{FieldManager: "script", Force: true})
	check(apierrors.IsUnsupportedMediaType(err), "expected UnsupportedMediaType, found %v", err)
	s.done("apply")
}

func (s *script) apply(values string) {
	wanted := s.configMap("applied", "")
	wanted.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	wanted.Data = nil
	must(json.Unmarshal([]byte(values), &wanted.Data))
	text, err := json.Marshal(wanted)
	must(err)
	wanted.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: string(text)}
	found, err := s.configMaps().Get(s.ctx, "applied", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = s.configMaps().Create(s.ctx, wanted, metav1.CreateOptions{})
		must(err)
		return
	}
	must(err)
	before := []byte(found.Annotations[corev1.LastAppliedConfigAnnotation])
	found.TypeMeta = wanted.TypeMeta
	current, err := json.Marshal(found)
	must(err)
	modified, err := json.Marshal(wanted)
	must(err)
	schema, err := strategicpatch.NewPatchMetaFromStruct(&corev1.ConfigMap{})
	must(err)
	patch, err := strategicpatch.CreateThreeWayMergePatch(before, modified, current, schema, true)
	must(err)
	_, err = s.configMaps().Patch(s.ctx, "applied", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	must(err)
}

func (s *script) executes() {
	pods := s.client.CoreV1().Pods(s.namespace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "target"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "target:1", Command: []string{"sh", "-c", "echo begun; exec sleep 1000"},
		}}},
	}
	_, err := pods.Create(s.ctx, pod, metav1.CreateOptions{})
	must(err)
	s.until("the pod is ready", func() bool {
		found, err := pods.Get(s.ctx, "target", metav1.GetOptions{})
		must(err)
		return ready(found)
	})
	request := s.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(s.namespace).Name("target").
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Command: []string{"sh", "-c", "cat; echo err >&2; exit 7"}, Stdin: true, Stdout: true, Stderr: true,
	}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(s.config, "GET", request.URL().String())
	must(err)
	var stdout, stderr bytes.Buffer
	err = executor.StreamWithContext(s.ctx, remotecommand.StreamOptions{
		Stdin: bytes.NewBufferString("given"), Stdout: &stdout, Stderr: &stderr,
	})
	var code utilexec.CodeExitError
	check(errors.As(err, &code) && code.Code == 7, "expected exit code 7, found %v", err)
	check(stdout.String() == "given" && stderr.String() == "err\n", "found %q and %q", stdout.String(), stderr.String())
	log, err := pods.GetLogs("target", &corev1.PodLogOptions{}).DoRaw(s.ctx)
	must(err)
	check(string(log) == "begun\n", "found the log %q", log)
	s.done("exec")
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func (s *script) deletes() {
	found, err := s.configMaps().Get(s.ctx, "c", metav1.GetOptions{})
	must(err)
	other := types.UID("another")
	err = s.configMaps().Delete(s.ctx, "c", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	check(apierrors.IsConflict(err), "expected Conflict, found %v", err)
	err = s.configMaps().Delete(s.ctx, "c", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &found.UID}})
	must(err)
	s.watch.next(watch.Deleted, "c")
	_, err = s.configMaps().Get(s.ctx, "c", metav1.GetOptions{})
	check(apierrors.IsNotFound(err), "expected NotFound, found %v", err)
	must(s.configMaps().DeleteCollection(s.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: selector}))
	list, err := s.configMaps().List(s.ctx, metav1.ListOptions{LabelSelector: selector})
	must(err)
	check(len(list.Items) == 0, "expected nothing, found %v", list.Items)
	pods := s.client.CoreV1().Pods(s.namespace)
	grace := int64(1)
	must(pods.Delete(s.ctx, "target", metav1.DeleteOptions{GracePeriodSeconds: &grace}))
	s.until("the pod is gone", func() bool {
		_, err := pods.Get(s.ctx, "target", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	s.done("delete")
}
