package apitest

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// The resources that are served, by the last part of their path.
const (
	Services       = "services"
	EndpointSlices = "endpointslices"
	Nodes          = "nodes"
	ServiceCIDRs   = "servicecidrs"
	// events can be created only; Server.Events tells them.
	events = "events"
)

// resource is what a resource needs to be listed.
type resource struct {
	version schema.GroupVersion
	list    runtime.Object
	single  runtime.Object
	// fields gives what field selectors can ask for besides the name.
	fields func(runtime.Object) fields.Set
}

var resources = map[string]resource{
	Services:       {corev1.SchemeGroupVersion, &corev1.ServiceList{}, &corev1.Service{}, serviceFields},
	Nodes:          {corev1.SchemeGroupVersion, &corev1.NodeList{}, &corev1.Node{}, nil},
	EndpointSlices: {discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSliceList{}, &discoveryv1.EndpointSlice{}, nil},
	ServiceCIDRs:   {networkingv1.SchemeGroupVersion, &networkingv1.ServiceCIDRList{}, &networkingv1.ServiceCIDR{}, nil},
}

// serviceFields are those that the API supports (k8s.io/kubernetes,
// pkg/registry/core/service/strategy.go).
func serviceFields(object runtime.Object) fields.Set {
	spec := object.(*corev1.Service).Spec // the map above pairs them
	return fields.Set{"spec.clusterIP": spec.ClusterIP, "spec.type": string(spec.Type)}
}

var codecs = serializer.NewCodecFactory(newScheme())

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme, eventsv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}
