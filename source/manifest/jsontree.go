package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// jsonReader builds the same trees from JSON as the YAML parser builds from
// YAML, with the line of every key and value.
type jsonReader struct {
	data    []byte
	decoder *json.Decoder
	// line is that of offset, the position up to which lines were counted.
	line   int
	offset int
}

func jsonDocuments(data []byte) ([]*yaml.Node, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	reader := &jsonReader{data: data, decoder: decoder, line: 1}
	var roots []*yaml.Node
	for {
		root, err := reader.value(0)
		if errors.Is(err, io.EOF) {
			return roots, nil
		}
		if err != nil {
			return nil, err
		}
		roots = append(roots, root)
	}
}

// token reads one token and gives the line on which it ends; tokens of JSON do
// not span lines.
func (r *jsonReader) token() (json.Token, int, error) {
	token, err := r.decoder.Token()
	end := int(r.decoder.InputOffset())
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		end = min(int(syntax.Offset), len(r.data))
	}
	if end > r.offset {
		r.line += bytes.Count(r.data[r.offset:end], []byte("\n"))
		r.offset = end
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = &lineError{r.line, "not valid JSON: " + err.Error()}
	}
	return token, r.line, err
}

// value reads one value; depth is the number of containers around it.
func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	token, line, err := r.token()
	if err != nil {
		if depth > 0 && errors.Is(err, io.EOF) {
			err = &lineError{line, "not valid JSON: the file ends too early"}
		}
		return nil, err
	}
	if depth > depthMax {
		return nil, &lineError{line, fmt.Sprintf("nested more than %d levels deep", depthMax)}
	}
	switch token := token.(type) {
	case json.Delim:
		return r.container(token, line, depth)
	case string:
		return scalar("!!str", token, line), nil
	case json.Number:
		if _, err := strconv.ParseInt(token.String(), 10, 64); err == nil {
			return scalar("!!int", token.String(), line), nil
		}
		return scalar("!!float", token.String(), line), nil
	case bool:
		return scalar("!!bool", strconv.FormatBool(token), line), nil
	default:
		return scalar("!!null", "null", line), nil
	}
}

func (r *jsonReader) container(open json.Delim, line, depth int) (*yaml.Node, error) {
	node := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: line}
	if open == '{' {
		node.Kind, node.Tag = yaml.MappingNode, "!!map"
	}
	for r.decoder.More() {
		if node.Kind == yaml.MappingNode {
			key, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, key)
		}
		value, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, value)
	}
	if _, line, err := r.token(); errors.Is(err, io.EOF) {
		return nil, &lineError{line, "not valid JSON: the file ends too early"}
	} else if err != nil {
		return nil, err
	}
	return node, nil
}

func scalar(tag, value string, line int) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value, Line: line}
}
