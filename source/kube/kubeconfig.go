// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// readKubeconfig reads the file with the address and the credentials. Each error says which file it
// is, what is wrong there, and what to write instead where that is known.
func readKubeconfig(path, master string) (*rest.Config, error) {
	if path != "" {
		if _, err := clientcmd.LoadFromFile(path); err != nil {
			return nil, fmt.Errorf("kubeconfig %q: %w", path, unreadable(err))
		}
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	overrides := &clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: master}}
	client, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	switch {
	case err == nil:
		return client, nil
	case path == "":
		return nil, fmt.Errorf("--master %q: %w", master, err)
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("kubeconfig %q: no cluster configured: clusters, users, contexts and current-context are required", path)
	}
	return nil, fmt.Errorf("kubeconfig %q: %s (to view it: kubectl config view --kubeconfig %s)", path, listed(err), path)
}

// unreadable says why a file is no kubeconfig.
func unreadable(err error) error {
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("cannot be read: %w", file.Err)
	}
	if value, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if value.Field == "" {
			return fmt.Errorf("is a %s; must contain the fields of a kubeconfig", value.Value)
		}
		return fmt.Errorf("%s is a %s; must be %s", value.Field, value.Value, wanted(value.Type))
	}
	if runtime.IsNotRegisteredError(err) || runtime.IsMissingKind(err) || runtime.IsMissingVersion(err) {
		return errors.New("not a kubeconfig: must contain apiVersion: v1 and kind: Config")
	}
	return fmt.Errorf("not a kubeconfig: %w", err)
}

// wanted describes the values of a field.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "fields with values"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text; quote it if it looks like something else"
	default:
		return "a " + t.Kind().String()
	}
}

// listed returns what is wrong, without brackets around a list.
func listed(err error) string {
	all, ok := err.(interface{ Errors() []error })
	if !ok {
		return err.Error()
	}
	var texts []string
	for _, one := range all.Errors() {
		texts = append(texts, strings.TrimSuffix(one.Error(), "."))
	}
	return strings.Join(texts, "; ")
}
