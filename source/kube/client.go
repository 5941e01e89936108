package kube

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// scheme knows the three groups that are read. The generated clientset would
// bring all groups along, and their memory.
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
	// per second and in requests. 0 means 5 and 10; a negative QPS means no
	// bound.
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
	// AbsentRetry is how long to wait before asking again for a resource that
	// the server does not serve, or does not let us read; 0 means 5 minutes. It
	// applies to ServiceCIDRs only.
	AbsentRetry time.Duration
}

// withDefaults fills the zero values.
func (c Config) withDefaults() Config {
	if c.QPS == 0 {
		c.QPS = 5
	}
	if c.Burst == 0 {
		c.Burst = 10
	}
	if c.ContentType == "" {
		c.ContentType = Protobuf
	}
	if c.AcceptContentTypes == "" {
		c.AcceptContentTypes = c.ContentType + ",application/json"
	}
	if c.AbsentRetry == 0 {
		c.AbsentRetry = 5 * time.Minute
	}
	return c
}

func (c Config) validate() error {
	var problems []error
	if c.NodeName == "" {
		problems = append(problems, errors.New("node name must not be empty"))
	}
	if c.Burst < 0 {
		problems = append(problems, fmt.Errorf("burst must not be negative, is %d", c.Burst))
	}
	if c.AbsentRetry < 0 {
		problems = append(problems, fmt.Errorf("absent retry must not be negative, is %s", c.AbsentRetry))
	}
	return errors.Join(problems...)
}

// RESTConfig builds the client configuration, for this package and for others
// that talk to the same server. It reads files but connects to nothing.
func RESTConfig(config Config) (*rest.Config, error) {
	config = config.withDefaults()
	client, err := serverConfig(config)
	if err != nil {
		return nil, err
	}
	client.ContentType = config.ContentType
	client.AcceptContentTypes = config.AcceptContentTypes
	client.QPS = config.QPS
	client.Burst = config.Burst
	if config.UserAgent != "" {
		client.UserAgent = config.UserAgent
	}
	if config.QPS > 0 {
		// One limiter, or each resource's client would get the full rate.
		client.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, config.Burst)
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
