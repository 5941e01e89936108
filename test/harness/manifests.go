// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/sluice-proxy/sluice/test/testenv"
)

// Manifests are objects as a file has them, in its order.
type Manifests []*unstructured.Unstructured

// ReadManifests reads a file of the repository, named by its path there.
func ReadManifests(path string) (Manifests, error) {
	text, err := os.ReadFile(filepath.Join(testenv.Root(), path))
	if err != nil {
		return nil, err
	}
	return ParseManifests(text)
}

// BuildManifests returns what kustomize makes of a directory of the repository.
func BuildManifests(folder string) (Manifests, error) {
	kustomize, err := kustomizeBinary()
	if err != nil {
		return nil, err
	}
	text, err := exec.Command(kustomize, "build", filepath.Join(testenv.Root(), folder)).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("kustomize build %s: %s", folder, failed.Stderr)
	}
	if err != nil {
		return nil, err
	}
	return ParseManifests(text)
}

// ChartManifests returns what Helm makes of deploy/chart for a release in a namespace.
func ChartManifests(release, namespace string, args ...string) (Manifests, error) {
	helm, err := helmBinary()
	if err != nil {
		return nil, err
	}
	command := append([]string{release, filepath.Join(testenv.Root(), "deploy/chart"), "--namespace", namespace}, args...)
	text, err := exec.Command(helm, command...).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("helm %v: %s", command, failed.Stderr)
	}
	if err != nil {
		return nil, err
	}
	return ParseManifests(text)
}

// ParseManifests reads YAML documents.
func ParseManifests(text []byte) (Manifests, error) {
	var all Manifests
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(&object.Object)
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		case len(object.Object) > 0:
			all = append(all, object)
		}
	}
}

// Of returns the one object of a kind, read into its type.
func Of[T any](all Manifests, kind string) (*T, error) {
	var found []*unstructured.Unstructured
	for _, object := range all {
		if object.GetKind() == kind {
			found = append(found, object)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d objects of kind %s, want one", len(found), kind)
	}
	into := new(T)
	// The last argument rejects fields that the type does not have.
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(found[0].Object, into, true)
	return into, err
}

// Apply applies the objects as `kubectl apply --server-side` does. The server rejects unknown and
// repeated fields. It returns what the server has stored.
func (s *APIServer) Apply(ctx context.Context, all Manifests) (Manifests, error) {
	config, err := s.Config()
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	typed, err := s.Client()
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(typed.Discovery()))
	var stored Manifests
	for _, object := range all {
		at := fmt.Sprintf("%s %s", object.GetKind(), object.GetName())
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			resource = client.Resource(mapping.Resource).Namespace(object.GetNamespace())
		}
		body, err := json.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		got, err := resource.Patch(ctx, object.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{
			FieldManager: "e2e", FieldValidation: metav1.FieldValidationStrict, Force: new(true),
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		stored = append(stored, got)
	}
	return stored, nil
}
