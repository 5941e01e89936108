package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	strictjson "sigs.k8s.io/json"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/reduce"
)

// parse returns either all objects of a file or its problems. It is pure; file is for
// messages only.
func parse(file string, data []byte) ([]object, []Problem) {
	roots, err := documents(data)
	if err != nil {
		return nil, []Problem{problemOf(file, err)}
	}
	var objects []object
	var problems []Problem
	lines := make(map[objectID]int)
	for _, root := range roots {
		members, err := split(root)
		if err != nil {
			problems = append(problems, problemOf(file, err))
			continue
		}
		for _, member := range members {
			parsed, found := parseObject(file, member)
			if first, twice := lines[parsed.id]; twice && len(found) == 0 {
				found = []Problem{{
					File: file, Line: parsed.line, Object: parsed.id.String(), Field: "metadata.name",
					Message: fmt.Sprintf("is already defined on line %d", first),
				}}
			}
			lines[parsed.id] = parsed.line
			objects = append(objects, parsed)
			problems = append(problems, found...)
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return objects, nil
}

// split opens a List into its items; anything else is one object.
func split(root *yaml.Node) ([]*yaml.Node, error) {
	if root.Kind != yaml.MappingNode {
		return nil, &lineError{root.Line, "must be an object with apiVersion and kind"}
	}
	if text(root, "kind") != "List" || text(root, "apiVersion") != "v1" {
		return []*yaml.Node{root}, nil
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch key := root.Content[i]; key.Value {
		case "apiVersion", "kind", "metadata", "items":
		default:
			return nil, &lineError{key.Line, fmt.Sprintf("List: %s: unknown field", key.Value)}
		}
	}
	items := child(root, "items")
	if items == nil {
		return nil, nil
	}
	if items.Kind != yaml.SequenceNode {
		return nil, &lineError{items.Line, "List: items: must be a list"}
	}
	return items.Content, nil
}

// parseObject decodes, completes, checks and reduces one object.
func parseObject(file string, node *yaml.Node) (object, []Problem) {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind != yaml.MappingNode {
		return object{}, []Problem{{File: file, Line: node.Line, Message: "must be an object with apiVersion and kind"}}
	}
	kind := typeMeta{text(node, "apiVersion"), text(node, "kind")}
	read, ok := readers[kind]
	if !ok {
		return object{}, []Problem{unknownKind(file, node, kind)}
	}
	encoded, err := encode(node)
	if err != nil {
		problem := problemOf(file, err)
		problem.Object = nameOf(node, kind.kind)
		return object{}, []Problem{problem}
	}
	parsed, found := read(encoded)
	parsed.line = node.Line
	var problems []Problem
	for _, finding := range found {
		problems = append(problems, Problem{
			File: file, Line: encoded.line(finding.field), Object: nameOf(node, kind.kind),
			Field: finding.field, Message: finding.message,
		})
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Line - b.Line })
	return parsed, problems
}

func unknownKind(file string, node *yaml.Node, kind typeMeta) Problem {
	problem := Problem{File: file, Line: node.Line, Field: "kind"}
	switch {
	case kind.apiVersion == "" || kind.kind == "":
		problem.Message = "apiVersion and kind are required"
	default:
		problem.Message = fmt.Sprintf("%s %s is not understood; expected v1 Service, discovery.k8s.io/v1 EndpointSlice, "+
			"v1 Node, networking.k8s.io/v1 ServiceCIDR or v1 List", kind.apiVersion, kind.kind)
	}
	if at := child(node, "kind"); at != nil {
		problem.Line = at.Line
	}
	return problem
}

// nameOf returns the name of an object as far as it can be read.
func nameOf(node *yaml.Node, kind string) string {
	metadata := child(node, "metadata")
	if metadata == nil || text(metadata, "name") == "" {
		return kind
	}
	id := objectID{kind: kind, namespace: text(metadata, "namespace"), name: text(metadata, "name")}
	if id.namespace == "" && namespaced(kind) {
		id.namespace = defaultNamespace
	}
	return id.String()
}

func problemOf(file string, err error) Problem {
	problem := Problem{File: file, Message: err.Error()}
	var at *lineError
	if errors.As(err, &at) {
		problem.Line = at.line
	}
	return problem
}

// typeMeta is the apiVersion and kind of an object.
type typeMeta struct {
	apiVersion, kind string
}

// readers hold the reader of each kind.
var readers = map[typeMeta]func(*encoding) (object, findings){
	{"v1", kindService}: reader(kindService, defaultService, checkService,
		func(o *object, read *corev1.Service) { o.spec, o.warnings = reduce.Service(read) }),
	{"discovery.k8s.io/v1", kindEndpointSlice}: reader(kindEndpointSlice, defaultEndpointSlice, checkEndpointSlice,
		func(o *object, read *discoveryv1.EndpointSlice) { o.slice, o.warnings = reduce.EndpointSlice(read) }),
	{"v1", kindNode}: reader(kindNode, defaultNode, checkNode,
		func(o *object, read *corev1.Node) { o.node, o.warnings = reduce.Node(read) }),
	{"networking.k8s.io/v1", kindServiceCIDR}: reader(kindServiceCIDR, func(*networkingv1.ServiceCIDR) {}, checkServiceCIDR,
		func(o *object, read *networkingv1.ServiceCIDR) { o.ranges, o.warnings = reduce.ServiceCIDR(read) }),
}

// reader returns a function that decodes an object, completes it with the API's
// defaults, checks it and reduces it.
func reader[T any, P interface {
	*T
	metav1.Object
}](kind string, complete func(*T), check func(*T) findings, reduce func(*object, *T)) func(*encoding) (object, findings) {
	return func(encoded *encoding) (object, findings) {
		read := new(T)
		if found := decode(encoded, read); len(found) > 0 {
			return object{}, found
		}
		complete(read)
		meta := P(read)
		o := object{id: objectID{kind, meta.GetNamespace(), meta.GetName()}}
		reduce(&o, read)
		if found := rejected(check(read), o.warnings); len(found) > 0 {
			return object{}, found
		}
		return o, nil
	}
}

// rejected adds to findings the warnings that reject an object in a manifest, apart
// from those about what has a finding already. An API server accepts any annotation,
// and slices of host names.
func rejected(found findings, warnings []service.Warning) findings {
	subject := func(field string) string {
		if strings.HasPrefix(field, "spec.clusterIP") || strings.HasPrefix(field, "spec.ipFamilies") {
			return "spec.clusterIP" // three fields say one thing
		}
		return field
	}
	for _, w := range warnings {
		known := slices.ContainsFunc(found, func(f finding) bool { return subject(f.field) == subject(w.Field) })
		if !known && !strings.HasPrefix(w.Field, "metadata.annotations[") && w.Field != "addressType" {
			found.add(w.Field, "%s", w.Problem)
		}
	}
	return found
}

// decode rejects fields that the kind does not have, and values of the wrong
// type.
func decode(encoded *encoding, into any) findings {
	var found findings
	strict, err := strictjson.UnmarshalStrict(encoded.json, into)
	var mistyped *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mistyped):
		// mistyped.Field has no indices; the offset tells the exact place.
		found.add(encoded.pathAt(int(mistyped.Offset)), "must be a %s, is a %s", typeName(mistyped.Type.Kind()), mistyped.Value)
	case err != nil:
		found.add("", "cannot be decoded: %s", err)
	}
	for _, err := range strict {
		field := ""
		var at strictjson.FieldError
		if errors.As(err, &at) {
			field = at.FieldPath()
		}
		found.add(field, "unknown field")
	}
	return found
}

// typeName returns the name of a Go type in the words of YAML.
func typeName(kind reflect.Kind) string {
	switch kind {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		return "list"
	case reflect.Map, reflect.Struct:
		return "map"
	default:
		return "number"
	}
}

// Problem says why a file, or the directory, is rejected.
type Problem struct {
	// File is the path of the file or of the directory.
	File string
	// Line is counted from 1; 0 if unknown.
	Line int
	// Object is kind and name, for example "Service default/web"; empty when
	// the file could not be read that far.
	Object string
	// Field is the path of the field, for example "spec.ports[0].port"; empty
	// if the problem concerns no single field.
	Field string
	// Message says what is wrong and, where possible, what to write instead.
	Message string
	// More is the number of further problems in the same file.
	More int
}

// String returns one line: "web.yaml:12: Service default/web: spec.ports[0].port:
// 0 is not a port number (1 to 65535) (and 2 more problems)".
func (p Problem) String() string {
	var line strings.Builder
	line.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&line, ":%d", p.Line)
	}
	for _, part := range []string{p.Object, p.Field, p.Message} {
		if part != "" {
			line.WriteString(": " + part)
		}
	}
	switch {
	case p.More == 1:
		line.WriteString(" (and 1 more problem)")
	case p.More > 1:
		fmt.Fprintf(&line, " (and %d more problems)", p.More)
	}
	return line.String()
}

// finding is a problem inside one object, before its line is known.
type finding struct {
	field   string
	message string
}

// findings collects the problems of one object.
type findings []finding

func (f *findings) add(field, format string, arguments ...any) {
	*f = append(*f, finding{field, fmt.Sprintf(format, arguments...)})
}

// objectID names an object across all files. Namespace is empty for kinds that
// have none.
type objectID struct {
	kind, namespace, name string
}

// path returns "namespace/name", or the name alone.
func (id objectID) path() string {
	if id.namespace == "" {
		return id.name
	}
	return id.namespace + "/" + id.name
}

// String returns "Service default/web".
func (id objectID) String() string { return id.kind + " " + id.path() }

// object is one accepted object, reduced to the value of its kind. A nil value
// means that the object does not concern a proxy.
type object struct {
	id objectID
	// line is where the object starts in its file.
	line     int
	spec     *service.Spec
	slice    *service.Slice
	node     *service.NodeObject
	ranges   []netip.Prefix
	warnings []service.Warning
}

// The kinds that a manifest may hold.
const (
	kindService       = "Service"
	kindEndpointSlice = "EndpointSlice"
	kindNode          = "Node"
	kindServiceCIDR   = "ServiceCIDR"
)

// feed stores the object in the cache, apart from Nodes other than nodeName.
func (o object) feed(cache *source.Cache, nodeName string) {
	cache.Warn(o.id.kind, o.id.path(), o.warnings)
	switch o.id.kind {
	case kindService:
		if o.spec == nil {
			o.id.remove(cache)
			return
		}
		cache.SetSpec(o.spec)
	case kindEndpointSlice:
		if o.slice == nil {
			o.id.remove(cache)
			return
		}
		cache.SetSlice(o.slice)
	case kindNode:
		if o.id.name == nodeName && o.node != nil {
			cache.SetNode(o.node)
		}
	case kindServiceCIDR:
		cache.SetServiceCIDR(o.id.name, o.ranges)
	}
}

// remove removes the object from the cache. A deleted Node stays in use, as with an API
// server.
func (id objectID) remove(cache *source.Cache) {
	switch id.kind {
	case kindService:
		cache.RemoveSpec(service.Key{Namespace: id.namespace, Name: id.name})
	case kindEndpointSlice:
		cache.RemoveSlice(id.namespace, id.name)
	case kindServiceCIDR:
		cache.RemoveServiceCIDR(id.name)
	}
}

const defaultNamespace = "default"

// defaultAffinitySeconds is what an API server sets for ClientIP affinity.
const defaultAffinitySeconds = int32(corev1.DefaultClientIPServiceAffinitySeconds)

func namespaced(kind string) bool { return kind == kindService || kind == kindEndpointSlice }

// defaultService sets what an API server would set and a proxy reads, except
// what has to be allocated.
func defaultService(object *corev1.Service) {
	spec := &object.Spec
	setDefault(&object.Namespace, defaultNamespace)
	setDefault(&spec.Type, corev1.ServiceTypeClusterIP)
	setDefault(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	for i := range spec.Ports {
		setDefault(&spec.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		defaultAffinity(spec)
	}
	if externallyAccessible(spec) {
		setDefault(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	if spec.ClusterIP == "" && len(spec.ClusterIPs) > 0 {
		spec.ClusterIP = spec.ClusterIPs[0]
	}
	if len(spec.ClusterIPs) == 0 && spec.ClusterIP != "" {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if len(spec.IPFamilies) == 0 && spec.ClusterIP != corev1.ClusterIPNone {
		spec.IPFamilies = familiesOf(spec.ClusterIPs)
	}
}

func defaultAffinity(spec *corev1.ServiceSpec) {
	if spec.SessionAffinityConfig == nil {
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{}
	}
	if spec.SessionAffinityConfig.ClientIP == nil {
		spec.SessionAffinityConfig.ClientIP = &corev1.ClientIPConfig{}
	}
	if spec.SessionAffinityConfig.ClientIP.TimeoutSeconds == nil {
		seconds := defaultAffinitySeconds
		spec.SessionAffinityConfig.ClientIP.TimeoutSeconds = &seconds
	}
}

// externallyAccessible reports whether externalTrafficPolicy counts.
func externallyAccessible(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer || spec.Type == corev1.ServiceTypeNodePort ||
		spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0
}

// familiesOf returns the families of addresses; it gives none if one is not an
// address, which the check that follows reports.
func familiesOf(addresses []string) []corev1.IPFamily {
	var families []corev1.IPFamily
	for _, text := range addresses {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil
		}
		families = append(families, familyOf(address))
	}
	return families
}

func familyOf(address netip.Addr) corev1.IPFamily {
	if address.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// defaultEndpointSlice sets the names and protocols of ports.
func defaultEndpointSlice(object *discoveryv1.EndpointSlice) {
	setDefault(&object.Namespace, defaultNamespace)
	for i := range object.Ports {
		port := &object.Ports[i]
		if port.Name == nil {
			port.Name = new(string)
		}
		if port.Protocol == nil {
			protocol := corev1.ProtocolTCP
			port.Protocol = &protocol
		}
	}
}

// defaultNode completes the two spellings of the pod ranges.
func defaultNode(object *corev1.Node) {
	if len(object.Spec.PodCIDRs) == 0 && object.Spec.PodCIDR != "" {
		object.Spec.PodCIDRs = []string{object.Spec.PodCIDR}
	}
}

func setDefault[T comparable](field *T, value T) {
	var unset T
	if *field == unset {
		*field = value
	}
}
