// SPDX-License-Identifier: Apache-2.0

// Package fleet asks the proxies of all nodes of a cluster, through the API server and with the rights of the user. It
// contains the commands of kubectl sluice, which are also those of sluice fleet. The queries and the types of the
// answers are those of package inspect; see docs/kubectl-sluice.md and docs/adr/0058-ask-all-nodes.md.
package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/kube"
	"github.com/sluice-proxy/sluice/source/reduce"
)

// cluster reads objects and asks proxies through one API server.
type cluster struct {
	flags *flags
	// namespace is that of the objects that arguments name.
	namespace string
	api       *rest.RESTClient
	transport http.RoundTripper
	// scheme precedes the names of pods in paths: "https:" with a token for the proxies, otherwise empty, for HTTP.
	scheme string
}

var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	utilruntime.Must(errors.Join(appsv1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme), corev1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme)))
	return serializer.NewCodecFactory(scheme)
}()

// connect reads the kubeconfig. It connects to nothing.
func (f *flags) connect() (*cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	made := &cluster{flags: f, namespace: f.namespace}
	if made.namespace == "" {
		if made.namespace, _, err = loader.Namespace(); err != nil {
			return nil, fmt.Errorf("kubeconfig: %w", err)
		}
	}
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/api", &schema.GroupVersion{Version: "v1"}, codecs.WithoutConversion()
	config.ContentType, config.AcceptContentTypes = kube.Protobuf, kube.Protobuf+",application/json"
	config.UserAgent = "kubectl-sluice/" + f.version
	config.QPS = -1 // --parallel bounds the requests
	over, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	made.transport = over.Transport
	made.api, err = rest.RESTClientForConfigAndClient(config, over)
	return made, err
}

// connectAll returns a cluster and its proxies.
func (f *flags) connectAll(ctx context.Context) (c *cluster, all []client.Target, note string, err error) {
	if c, err = f.connect(); err == nil {
		all, note, err = c.proxies(ctx)
	}
	return c, all, note, err
}

// proxies returns the proxies of all nodes in the order of their names. The target of a node without a pod of Sluice
// has an error. The note describes what is missing; it is empty if nothing is missing.
func (c *cluster) proxies(ctx context.Context) (all []client.Target, note string, err error) {
	found, err := c.pods(ctx, "")
	if err != nil {
		return nil, "", err
	}
	if note, err = c.authenticate(); err != nil {
		return nil, "", err
	}
	nodes, err := c.nodes(ctx)
	if err != nil {
		note += fmt.Sprintf("nodes without a pod of Sluice are not known: %v", err)
	}
	for _, node := range nodes {
		if _, ok := found[node]; !ok {
			found[node] = nil
		}
	}
	for _, node := range slices.Sorted(maps.Keys(found)) {
		all = append(all, c.proxyOf(node, found[node]))
	}
	if len(all) == 0 {
		return nil, "", fmt.Errorf("no pods in namespace %s have the labels %s; see --proxy-namespace and --selector", c.flags.proxyNamespace, c.flags.selector)
	}
	return all, strings.TrimSpace(note), nil
}

// pods returns the pod of Sluice on each node that fields select.
func (c *cluster) pods(ctx context.Context, fields string) (map[string]*corev1.Pod, error) {
	options := metav1.ListOptions{LabelSelector: c.flags.selector, FieldSelector: fields, ResourceVersion: "0"}
	var pods corev1.PodList
	err := c.api.Get().Namespace(c.flags.proxyNamespace).Resource("pods").VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Into(&pods)
	if err != nil {
		return nil, fmt.Errorf("list the pods of Sluice: %w", err)
	}
	found := map[string]*corev1.Pod{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if node := pod.Spec.NodeName; node != "" && (found[node] == nil || !running(found[node])) {
			found[node] = pod // during an update, a node may have two pods
		}
	}
	return found, nil
}

func running(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
}

// proxyOf returns the target for the proxy of a node. Pod is nil if the node has no pod of Sluice.
func (c *cluster) proxyOf(node string, pod *corev1.Pod) client.Target {
	switch {
	case pod == nil:
		return client.Target{Node: node, Err: errors.New("no pod of Sluice on this node")}
	case pod.Status.Phase != corev1.PodRunning:
		return client.Target{Node: node, Pod: pod.Name, Err: fmt.Errorf("pod %s is %s", pod.Name, strings.ToLower(string(pod.Status.Phase)))}
	}
	at := c.api.Get().Namespace(pod.Namespace).Resource("pods").Name(c.scheme + pod.Name + ":" + strconv.Itoa(int(c.flags.port))).SubResource("proxy").URL()
	return client.Target{Node: node, Pod: pod.Name, Client: inspect.NewRemoteClient(node, at, c.transport)}
}

// nodes returns the names of the Linux nodes. It asks for metadata only, because a Node is large.
func (c *cluster) nodes(ctx context.Context) (names []string, err error) {
	result := c.api.Get().Resource("nodes").Param("labelSelector", corev1.LabelOSStable+"=linux").Param("resourceVersion", "0").
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json").Do(ctx)
	if err := result.Error(); err != nil { // it contains the server's message, unlike that of Raw
		return nil, fmt.Errorf("list the Nodes: %w", err)
	}
	text, err := result.Raw()
	if err != nil {
		return nil, fmt.Errorf("list the Nodes: %w", err)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("list the Nodes: %w", err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

// service returns a Service, or an error if it does not exist, or no node serves it.
func (c *cluster) service(ctx context.Context, name string) (*corev1.Service, error) {
	var list corev1.ServiceList
	if err := c.named(ctx, "services", name, &list); err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("no Service %s in namespace %s", name, c.namespace)
	}
	if why := reduce.NotServed(&list.Items[0]); why != "" {
		return nil, fmt.Errorf("no node serves %s/%s: it %s", c.namespace, name, why)
	}
	return &list.Items[0], nil
}

// named lists the object with a name. It does not get the object, so that the commands need the right to list only.
func (c *cluster) named(ctx context.Context, resource, name string, into runtime.Object) error {
	selector := fields.Set{"metadata.name": name, "metadata.namespace": c.namespace}.String()
	err := c.api.Get().Namespace(c.namespace).Resource(resource).Param("fieldSelector", selector).Do(ctx).Into(into)
	if err != nil {
		return fmt.Errorf("list %s: %w", resource, err)
	}
	return nil
}

// digest returns the digest of a Service and its endpoints in the API server.
func (c *cluster) digest(ctx context.Context, name string) (string, error) {
	object, err := c.service(ctx, name)
	if err != nil {
		return "", err
	}
	var known service.Snapshot
	known.Spec, _ = (reduce.Policy{}).Service(object)
	var list discoveryv1.EndpointSliceList
	selector := labels.Set{discoveryv1.LabelServiceName: name}.String()
	err = c.api.Get().AbsPath("/apis/discovery.k8s.io/v1").Namespace(c.namespace).Resource("endpointslices").Param("labelSelector", selector).Do(ctx).Into(&list)
	if err != nil {
		return "", fmt.Errorf("list endpointslices: %w", err)
	}
	for i := range list.Items {
		if slice, _ := (reduce.Policy{}).EndpointSlice(&list.Items[i]); slice != nil && slice.Service.Namespace == c.namespace {
			known.Slices = append(known.Slices, slice)
		}
	}
	return inspect.Digest(known), nil
}
