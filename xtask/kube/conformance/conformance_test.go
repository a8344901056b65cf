// Package conformance is Kubernetes' own conformance suite with the groups of four SIGs, for
// xtask/src/campaign/conformance.rs: it lists the items, and says how those that it was asked for ended.
package conformance

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"k8s.io/kubernetes/test/conformance/testdata"
	"k8s.io/kubernetes/test/e2e"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	testingmanifests "k8s.io/kubernetes/test/e2e/testing-manifests"
	"k8s.io/kubernetes/test/fixtures"
	"sigs.k8s.io/yaml"

	// The groups; most items of pods are in `common`.
	_ "k8s.io/kubernetes/test/e2e/apimachinery"
	_ "k8s.io/kubernetes/test/e2e/apps"
	_ "k8s.io/kubernetes/test/e2e/auth"
	_ "k8s.io/kubernetes/test/e2e/common"
	_ "k8s.io/kubernetes/test/e2e/node"

	// What the framework lets each suite choose.
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	_ "k8s.io/kubernetes/test/utils/format"
)

var (
	list    = flag.Bool("list-items", false, "print the names of all conformance items as JSON, one a line")
	outcome = flag.String("outcome", "", "append how each item ended to this file, one JSON object a line")
)

// Outcome is how an item ended.
type Outcome struct {
	Item    string  `json:"item"`
	State   string  `json:"state"`
	Reason  string  `json:"reason"`
	Seconds float64 `json:"seconds"`
}

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(testingmanifests.GetE2ETestingManifestsFS())
	testfiles.AddFileSource(fixtures.GetTestFixturesFS())
	testfiles.AddFileSource(testdata.GetConformanceTestdataFS())
	if *list {
		if err := printItems(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	e2e.RunE2ETests(t)
}

func printItems() error {
	data, err := testfiles.Read("test/conformance/testdata/conformance.yaml")
	if err != nil {
		return err
	}
	var items []struct {
		Codename string `json:"codename"`
	}
	if err := yaml.Unmarshal(data, &items); err != nil {
		return err
	}
	lines := json.NewEncoder(os.Stdout)
	lines.SetEscapeHTML(false)
	for _, item := range items {
		if err := lines.Encode(item.Codename); err != nil {
			return err
		}
	}
	return nil
}

// Once at the end: a report after each item is made before its result is known. Items that nobody asked for have no
// attempt.
var _ = ginkgo.ReportAfterSuite("outcomes", func(report ginkgo.Report) {
	if *outcome == "" {
		return
	}
	for _, item := range report.SpecReports {
		if item.NumAttempts == 0 || !item.LeafNodeType.Is(types.NodeTypeIt) {
			continue
		}
		line, err := json.Marshal(Outcome{
			Item:    item.FullText(),
			State:   item.State.String(),
			Reason:  item.FailureMessage(),
			Seconds: item.RunTime.Seconds(),
		})
		if err == nil {
			err = appendTo(*outcome, append(line, '\n'))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "the outcome cannot be written:", err)
			os.Exit(1)
		}
	}
})

func appendTo(path string, line []byte) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(line)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}
