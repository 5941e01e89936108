// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// scheme contains the three groups that are read. The generated clientset would bring all groups along, and their
// memory.
var scheme = newScheme()

var codecs = serializer.NewCodecFactory(scheme)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(discoveryv1.AddToScheme(scheme))
	utilruntime.Must(networkingv1.AddToScheme(scheme))
	return scheme
}

// newClients makes a REST client for each resource, and a function that closes all connections, which
// they share. The contact of a resource learns which requests get no answer.
func newClients(config *rest.Config, contacts map[string]*contact, l limits) (map[string]rest.Interface, func(), error) {
	config, closeAll := l.ownConnections(config)
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	config.NegotiatedSerializer = codecs.WithoutConversion()
	shared, err := rest.TransportFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make the HTTP transport: %w", err)
	}
	clients := make(map[string]rest.Interface)
	for resource, contact := range contacts {
		version := groups[resource]
		own := rest.CopyConfig(config)
		own.GroupVersion = &version
		own.APIPath = "/apis"
		if version.Group == "" {
			own.APIPath = "/api"
		}
		clients[resource], err = rest.RESTClientForConfigAndClient(own, &http.Client{Transport: answers{contact, shared}})
		if err != nil {
			return nil, nil, fmt.Errorf("make the client for %s: %w", resource, err)
		}
	}
	return clients, closeAll, nil
}

// Protobuf is the content type that the API server encodes fastest. Kinds that
// have no protobuf form are asked for as JSON.
const Protobuf = "application/vnd.kubernetes.protobuf"

// Config says how to reach the API server and what to ask it for.
type Config struct {
	// Kubeconfig is the path of a kubeconfig file. Empty, with an empty Master,
	// means the service account of the pod that this process runs in.
	Kubeconfig string
	// Master overrides the server's URL of the kubeconfig.
	Master string
	// QPS and Burst bound the requests of all resources together, in requests
	// per second and in requests; a negative QPS means no bound. 0 means
	// client-go's 5 and 10, for each client.
	QPS   float32
	Burst int
	// ContentType is what requests are encoded in; empty means Protobuf.
	ContentType string
	// AcceptContentTypes are the encodings that answers may have, separated by
	// commas as in an Accept header; empty means ContentType, and JSON for kinds
	// that have no other form.
	AcceptContentTypes string
	// UserAgent names this process to the server; empty means client-go's.
	UserAgent string
	// NodeName selects the Node to watch; it must not be empty.
	NodeName string
}

// RESTConfig builds the client configuration, for this package and for others
// that talk to the same server. It reads files but connects to nothing.
func RESTConfig(config Config) (*rest.Config, error) {
	client, err := serverConfig(config)
	if err != nil {
		return nil, err
	}
	client.ContentType = cmp.Or(config.ContentType, Protobuf)
	client.AcceptContentTypes = cmp.Or(config.AcceptContentTypes, client.ContentType+",application/json")
	client.QPS = config.QPS
	client.Burst = config.Burst
	if config.UserAgent != "" {
		client.UserAgent = config.UserAgent
	}
	if config.QPS > 0 {
		// One limiter, or each resource's client would get the full rate.
		client.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, cmp.Or(config.Burst, rest.DefaultBurst))
	}
	return client, nil
}

func serverConfig(config Config) (*rest.Config, error) {
	if config.Kubeconfig == "" && config.Master == "" {
		client, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no API server configured: set --kubeconfig, clientConnection.kubeconfig or --master, or run in a pod with a service account: %w", err)
		}
		return client, nil
	}
	return readKubeconfig(config.Kubeconfig, config.Master)
}
