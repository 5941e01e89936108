// SPDX-License-Identifier: Apache-2.0

// Package suite is the part of Kubernetes' end-to-end tests about the network, as published, with a
// report that test/e2e/upstream reads while the tests run.
package suite

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"k8s.io/kubernetes/test/e2e"
	_ "k8s.io/kubernetes/test/e2e/common/network"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	_ "k8s.io/kubernetes/test/e2e/network"
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"
)

// results names the file that gets a line for each test.
var results = flag.String("results", "", "file for the results")

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	// The line above runs a preview of all tests, after which ginkgo keeps containers only.
	ginkgo.ReportAfterEach(record)
	os.Exit(m.Run())
}

func TestE2E(t *testing.T) { e2e.RunE2ETests(t) }

// record writes the result of a test.
func record(spec ginkgo.SpecReport) {
	line, err := json.Marshal(map[string]any{
		"name":     spec.FullText(),
		"state":    spec.State.String(),
		"seconds":  spec.RunTime.Seconds(),
		"attempts": spec.NumAttempts,
		"message":  spec.Failure.Message,
	})
	if err == nil && spec.LeafNodeType.Is(types.NodeTypeIt) && *results != "" {
		err = add(line)
	}
	framework.ExpectNoError(err)
}

// add appends a line by one write, because the processes of a run share the file.
func add(line []byte) error {
	file, err := os.OpenFile(*results, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}
