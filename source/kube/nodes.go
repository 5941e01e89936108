// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

// NodeAddress is where a node of the cluster is.
type NodeAddress struct {
	Name string
	// Addr is the first InternalIP; not valid if there is none.
	Addr netip.Addr
}

// nodesPage is how many Nodes one request lists.
const nodesPage = 500

// NodeAddresses lists the nodes of the cluster in the order of their names.
func NodeAddresses(ctx context.Context, config Config) (nodes []NodeAddress, err error) {
	client, err := nodesClient(config)
	if err != nil {
		return nil, err
	}
	options := metav1.ListOptions{Limit: nodesPage}
	for more := true; more; more = options.Continue != "" {
		var page corev1.NodeList
		err := client.Get().Resource("nodes").VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Into(&page)
		if err != nil {
			return nil, fmt.Errorf("list the Nodes: %w", err)
		}
		for i := range page.Items {
			nodes = append(nodes, NodeAddress{page.Items[i].Name, internalIP(&page.Items[i])})
		}
		options.Continue = page.Continue
	}
	return nodes, nil
}

func nodesClient(config Config) (*rest.RESTClient, error) {
	api, err := RESTConfig(config)
	if err != nil {
		return nil, err
	}
	api.APIPath, api.GroupVersion, api.NegotiatedSerializer = "/api", &schema.GroupVersion{Version: "v1"}, codecs.WithoutConversion()
	return rest.RESTClientFor(api)
}

// Node returns the Node that a configuration selects.
func Node(ctx context.Context, config Config) (*service.NodeObject, error) {
	client, err := nodesClient(config)
	if err != nil {
		return nil, err
	}
	var object corev1.Node
	if err := client.Get().Resource("nodes").Name(config.NodeName).Do(ctx).Into(&object); err != nil {
		return nil, fmt.Errorf("get the Node: %w", err)
	}
	node, _ := reduce.Node(&object)
	return node, nil
}

func internalIP(node *corev1.Node) netip.Addr {
	for _, a := range node.Status.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			return addr
		}
	}
	return netip.Addr{}
}
