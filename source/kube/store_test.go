package kube

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testStore writes down what a store hands on.
func testStore(lines *[]string) *store[reducedService] {
	note := func(verb string) func(reducedService) {
		return func(item reducedService) { *lines = append(*lines, verb+" "+item.key.String()) }
	}
	return &store[reducedService]{
		reduce: reduceAs(reduceService),
		set:    note("set"), remove: note("remove"),
		replace: func(items []reducedService) {
			for _, item := range items {
				note("replace")(item)
			}
		},
		heard: func() { *lines = append(*lines, "heard") },
	}
}

func TestStoreAcceptsBothForms(t *testing.T) {
	var lines []string
	store := testStore(&lines)
	object := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	reduced, err := store.Transformer()(object)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []error{
		store.Add(object), store.Update(reduced), store.Delete(object),
		store.Replace([]any{object, reduced}, "1"), store.Resync(), store.Bookmark("2"),
	} {
		if step != nil {
			t.Error(step)
		}
	}
	want := []string{"heard", "set ns/a", "heard", "set ns/a", "heard", "remove ns/a",
		"heard", "replace ns/a", "replace ns/a", "heard"}
	if !slices.Equal(lines, want) {
		t.Errorf("store did %v, want %v", lines, want)
	}
}

// TestStoreRefusesStrangers: a list with an object that cannot be understood
// must not look like the deletion of that object.
func TestStoreRefusesStrangers(t *testing.T) {
	var lines []string
	store := testStore(&lines)
	stranger := &corev1.Pod{}
	known := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	for name, err := range map[string]error{
		"Add": store.Add(stranger), "Delete": store.Delete(stranger), "Replace": store.Replace([]any{known, stranger}, "1"),
	} {
		if err == nil {
			t.Errorf("%s accepted a Pod", name)
		}
	}
	if want := []string{"heard", "heard", "heard"}; !slices.Equal(lines, want) {
		t.Errorf("store did %v, want %v", lines, want)
	}
}
