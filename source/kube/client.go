package kube

import (
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
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

// clients holds one REST client per API group; they share one HTTP client, and
// so one connection.
type clients struct {
	core, discovery, networking rest.Interface
	// close closes the connections.
	close func()
}

func newClients(config *rest.Config, line *line) (*clients, error) {
	config, closeAll := withOwnConnections(config, dialMax)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return observed{line, next} })
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make the HTTP client: %w", err)
	}
	made := clients{close: closeAll}
	groups := []struct {
		version schema.GroupVersion
		client  *rest.Interface
	}{
		{corev1.SchemeGroupVersion, &made.core},
		{discoveryv1.SchemeGroupVersion, &made.discovery},
		{networkingv1.SchemeGroupVersion, &made.networking},
	}
	for _, group := range groups {
		if *group.client, err = clientFor(config, shared, group.version); err != nil {
			return nil, fmt.Errorf("make the client of %s: %w", group.version, err)
		}
	}
	return &made, nil
}

func clientFor(config *rest.Config, shared *http.Client, version schema.GroupVersion) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion = &version
	config.APIPath = "/apis"
	if version.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = codecs.WithoutConversion()
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	return rest.RESTClientForConfigAndClient(config, shared)
}
