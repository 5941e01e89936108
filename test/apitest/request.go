package apitest

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Request is what a client asked for.
type Request struct {
	Resource string
	Query    url.Values
	// Accept is the header of this name: media types, the best one first.
	Accept string
}

// negotiate returns the serializer of the type that a client likes best.
func negotiate(r *http.Request) (runtime.SerializerInfo, error) {
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	media, _, err := mime.ParseMediaType(first)
	if err != nil {
		media = runtime.ContentTypeJSON
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), media)
	if !ok {
		return info, fmt.Errorf("the client accepts %q only", r.Header.Get("Accept"))
	}
	return info, nil
}

// jsonSerializer writes what is answered whatever the client likes.
var jsonSerializer = func() runtime.Serializer {
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		panic("apimachinery without JSON")
	}
	return info.Serializer
}()
