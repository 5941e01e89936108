package reduce

import (
	"encoding/json"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// words are what the fuzzer builds strings from: the good, the bad and the ones
// that have meaning to some field.
var words = []string{
	"", "ns1", "svc1", "svc1-abc", "p80", "None", "bad", " ",
	"10.96.0.1", "010.96.0.1", "10.244.0.1", "10.244.0.2", "::ffff:10.244.0.1", "fd00::1", "FD00:0::1", "fe80::1%eth0",
	"10.0.0.0/8", " 10.1.2.3/08 ", "0.0.0.0/0", "fd00::/64", "::/0", "::ffff:10.0.0.0/104", "10.0.0.0/33",
	"IPv4", "IPv6", "FQDN", "TCP", "UDP", "SCTP", "ICMP",
	"ClusterIP", "NodePort", "LoadBalancer", "ExternalName", "Local", "Cluster", "ClientIP", "VIP", "Proxy",
	"n1", "n2", "za", "zb", "2026-01-02T03:04:05.678Z", "kubernetes.io/service-name",
	"endpoints.kubernetes.io/last-change-trigger-time", "topology.kubernetes.io/zone", "InternalIP", "ExternalIP",
}

var numbers = []int64{0, 1, 80, 8080, 10800, 30080, 65535, 65536, 86401, -1, -2147483648, 2147483647}

// filler turns bytes into objects. When the bytes run out, all else stays empty.
type filler []byte

func (f *filler) next(n int) int {
	if len(*f) == 0 {
		return 0
	}
	first := (*f)[0]
	*f = (*f)[1:]
	return int(first) % n
}

func (f *filler) fill(v reflect.Value) {
	if len(*f) == 0 || !v.CanSet() {
		return
	}
	if _, ok := v.Addr().Interface().(*metav1.Time); ok {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
	case reflect.Pointer:
		if f.next(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem())
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), f.next(5), 8))
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range f.next(4) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key)
			f.fill(value)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(words[f.next(len(words))])
	case reflect.Bool:
		v.SetBool(f.next(2) == 1)
	case reflect.Int32, reflect.Int64:
		v.SetInt(numbers[f.next(len(numbers))])
	}
}

// read makes an object from the fuzzer's bytes: JSON is decoded, anything else
// fills the given fields. It tells whether there is an object to look at.
func read(data []byte, object any, fields ...any) bool {
	if len(data) > 0 && data[0] == '{' {
		return json.Unmarshal(data, object) == nil
	}
	f := filler(data)
	for _, field := range fields {
		f.fill(reflect.ValueOf(field).Elem())
	}
	return true
}

// addSeeds gives the fuzzer an object as JSON, and bytes for the filler that
// begin in different places.
func addSeeds(f *testing.F, objects ...any) {
	for _, object := range objects {
		data, err := json.Marshal(object)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for start := range 4 {
		data := make([]byte, 300)
		for i := range data {
			data[i] = byte((start*61 + i*i*7 + i) % 251)
		}
		f.Add(data)
	}
}
