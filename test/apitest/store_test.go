// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func serviceNamed(name, clusterIP string, labels map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: labels},
		Spec:       corev1.ServiceSpec{ClusterIP: clusterIP},
	}
}

// TestStore_SelectionEntryAndExit: watchers see an object that enters or leaves their selection as added or deleted, as
// with a real API server.
func TestStore_SelectionEntryAndExit(t *testing.T) {
	sel, err := selectionOf(Services, url.Values{"labelSelector": {"!off"}, "fieldSelector": {"spec.clusterIP!=None"}})
	if err != nil {
		t.Fatal(err)
	}
	off := map[string]string{"off": ""}
	s := newStore()
	steps := []struct {
		what string
		do   func()
		want watch.EventType // "" for nothing
	}{
		{"created outside", func() { s.set(Services, serviceNamed("a", "10.0.0.1", off)) }, ""},
		{"enters", func() { s.set(Services, serviceNamed("a", "10.0.0.1", nil)) }, watch.Added},
		{"changes", func() { s.set(Services, serviceNamed("a", "10.0.0.2", nil)) }, watch.Modified},
		{"leaves by a field", func() { s.set(Services, serviceNamed("a", "None", nil)) }, watch.Deleted},
		{"removed outside", func() { s.remove(Services, "ns/a") }, ""},
		{"removed twice", func() { s.remove(Services, "ns/a") }, ""},
		{"created inside", func() { s.set(Services, serviceNamed("a", "10.0.0.1", nil)) }, watch.Added},
		{"leaves by a label", func() { s.set(Services, serviceNamed("a", "10.0.0.1", off)) }, watch.Deleted},
	}
	for _, step := range steps {
		before := s.version
		step.do()
		var got watch.EventType
		for _, n := range s.since(Services, before, sel) {
			got += n.kind
		}
		if got != step.want {
			t.Errorf("%s: watchers see %q, want %q", step.what, got, step.want)
		}
	}
	if got := s.selected(Services, sel); len(got) != 0 {
		t.Errorf("selected %d objects, want none", len(got))
	}
	if _, err := selectionOf(Services, url.Values{"fieldSelector": {"no operator"}}); err == nil {
		t.Error("a selector without an operator was taken")
	}
}
