// Evaluates alert rules on given series, with the query engine and the templates of Prometheus itself.
//
// promtool does so as well, and links every cloud whose machines Prometheus can find; this needs a tenth of that.
// lab/kubernetes.py builds it under the name `alert-tests`; tests/unit/charts/alert_evaluation.py asks it.
//
// Reads from its input one JSON object {queries, rules, tests} (see request), and writes one (see answer). Guarantees:
// rules are evaluated from time 0 on, every `interval`, in their order; `for` and `keep_firing_for` count as in
// Prometheus. What can't be parsed or evaluated is told in `errors`, never left out. Does not: record rules, read
// files, listen.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// As Prometheus' own defaults.
const (
	lookback   = 5 * time.Minute
	samplesMax = 10_000_000
	timeout    = time.Minute
)

type request struct {
	Queries []string // only parsed
	Rules   []rule
	Tests   []test
}

type rule struct {
	Alert         string
	Expr          string
	For           model.Duration
	KeepFiringFor model.Duration `json:"keep_firing_for"`
	Labels        map[string]string
	Annotations   map[string]string
}

type test struct {
	Interval model.Duration // of samples, and of evaluations
	Series   []series
	Times    []model.Duration // when it is told what fires
}

type series struct {
	Series string // as in a query: name{label="value"}
	Values string // in promtool's notation: 1 1+1x10 _x3 stale
}

type answer struct {
	Errors []string     `json:"errors"`
	Tests  [][][]firing `json:"tests"` // by test, by time
}

type firing struct {
	Alert       string            `json:"alert"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// point is one sample.
type point struct {
	at    int64 // ms
	value float64
}

func (p point) T() int64                      { return p.at }
func (p point) ST() int64                     { return 0 }
func (p point) F() float64                    { return p.value }
func (p point) H() *histogram.Histogram       { return nil }
func (p point) FH() *histogram.FloatHistogram { return nil }
func (p point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample           { return p }

type stored struct {
	labels labels.Labels
	points []point
}

// memory holds the series of one test.
type memory []stored

func (m memory) Querier(from, to int64) (storage.Querier, error) { return querier{m, from, to}, nil }

type querier struct {
	memory   memory
	from, to int64
}

func (querier) Close() error { return nil }

func (querier) LabelValues(
	context.Context, string, *storage.LabelHints, ...*labels.Matcher,
) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) LabelNames(
	context.Context, *storage.LabelHints, ...*labels.Matcher,
) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &seriesSet{at: -1}
	for _, one := range q.memory {
		fits := !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(one.labels.Get(m.Name)) })
		var samples []chunks.Sample
		for _, each := range one.points {
			if q.from <= each.at && each.at <= q.to {
				samples = append(samples, each)
			}
		}
		if fits && len(samples) > 0 {
			found.series = append(found.series, storage.NewListSeries(one.labels, samples))
		}
	}
	sort.Slice(found.series, func(i, j int) bool {
		return labels.Compare(found.series[i].Labels(), found.series[j].Labels()) < 0
	})
	return found
}

type seriesSet struct {
	series []storage.Series
	at     int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *seriesSet) At() storage.Series                { return s.series[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// active is an alert that is pending or fires.
type active struct {
	since  time.Time
	fires  bool
	goneAt time.Time // while it fires on although its expression is silent; else zero
	told   firing
}

type evaluator struct {
	parser parser.Parser
	engine *promql.Engine
	memory memory
	active map[string]*active // by rule and labels
}

func read(p parser.Parser, given []series, interval time.Duration) (memory, error) {
	var kept memory
	for _, one := range given {
		name, values, err := p.ParseSeriesDesc(one.Series + " " + one.Values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.Series, err)
		}
		// An empty label is none: a scraper keeps it so.
		made := stored{labels: labels.NewBuilder(name).Labels()}
		for index, value := range values {
			if !value.Omitted {
				made.points = append(made.points, point{int64(index) * interval.Milliseconds(), value.Value})
			}
		}
		for _, other := range kept {
			if labels.Equal(other.labels, made.labels) {
				return nil, fmt.Errorf("%s: given twice", one.Series)
			}
		}
		kept = append(kept, made)
	}
	return kept, nil
}

func (e *evaluator) query(ctx context.Context, text string, at time.Time) (promql.Vector, error) {
	query, err := e.engine.NewInstantQuery(ctx, e.memory, nil, text, at)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	result := query.Exec(ctx)
	if result.Err != nil {
		return nil, result.Err
	}
	switch value := result.Value.(type) {
	case promql.Vector:
		return slices.Clone(value), nil
	case promql.Scalar:
		return promql.Vector{{T: value.T, F: value.V}}, nil
	}
	return nil, fmt.Errorf("%s is a %s", text, result.Value.Type())
}

func (e *evaluator) expand(ctx context.Context, text string, sample promql.Sample, at time.Time) (string, error) {
	prefix := "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"
	data := template.AlertTemplateData(sample.Metric.Map(), nil, "", sample)
	moment := model.TimeFromUnixNano(at.UnixNano())
	return template.NewTemplateExpander(ctx, prefix+text, "alert", data, moment, e.query, &url.URL{}, nil).Expand()
}

// evaluate brings the alerts of one rule to a moment.
func (e *evaluator) evaluate(ctx context.Context, index int, rule rule, at time.Time) error {
	vector, err := e.query(ctx, rule.Expr, at)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, sample := range vector {
		told := firing{Alert: rule.Alert, Labels: sample.Metric.Map(), Annotations: map[string]string{}}
		delete(told.Labels, labels.MetricName)
		for _, pair := range []struct{ from, to map[string]string }{
			{rule.Labels, told.Labels}, {rule.Annotations, told.Annotations},
		} {
			for name, text := range pair.from {
				if pair.to[name], err = e.expand(ctx, text, sample, at); err != nil {
					return err
				}
			}
		}
		key := fmt.Sprint(index, labels.FromMap(told.Labels))
		if seen[key] {
			return fmt.Errorf("two results have the labels %s", labels.FromMap(told.Labels))
		}
		seen[key] = true
		one := e.active[key]
		if one == nil {
			one = &active{since: at}
			e.active[key] = one
		}
		one.goneAt, one.told = time.Time{}, told
		one.fires = one.fires || at.Sub(one.since) >= time.Duration(rule.For)
	}
	for key, one := range e.active {
		if seen[key] || !strings.HasPrefix(key, fmt.Sprint(index)+" ") {
			continue
		}
		if one.goneAt.IsZero() {
			one.goneAt = at
		}
		if !one.fires || at.Sub(one.goneAt) >= time.Duration(rule.KeepFiringFor) {
			delete(e.active, key)
		}
	}
	return nil
}

// firing gives what fires now, sorted.
func (e *evaluator) firing() []firing {
	found := []firing{}
	for _, one := range e.active {
		if one.fires {
			found = append(found, one.told)
		}
	}
	sort.Slice(found, func(i, j int) bool {
		a, b := found[i], found[j]
		if a.Alert != b.Alert {
			return a.Alert < b.Alert
		}
		return labels.Compare(labels.FromMap(a.Labels), labels.FromMap(b.Labels)) < 0
	})
	return found
}

func (e *evaluator) run(ctx context.Context, rules []rule, given test) ([][]firing, error) {
	interval := time.Duration(given.Interval)
	if interval <= 0 {
		return nil, fmt.Errorf("no interval")
	}
	var err error
	if e.memory, err = read(e.parser, given.Series, interval); err != nil {
		return nil, err
	}
	e.active = map[string]*active{}
	told := make([][]firing, len(given.Times))
	last := time.Duration(slices.Max(append(given.Times, 0)))
	for passed := time.Duration(0); passed <= last; passed += interval {
		for index, rule := range rules {
			if err := e.evaluate(ctx, index, rule, time.UnixMilli(0).UTC().Add(passed)); err != nil {
				return nil, fmt.Errorf("%s: %w", rule.Alert, err)
			}
		}
		for index, wanted := range given.Times {
			if wanted := time.Duration(wanted); wanted >= passed && wanted < passed+interval {
				told[index] = e.firing()
			}
		}
	}
	return told, nil
}

func main() {
	var asked request
	input := json.NewDecoder(os.Stdin)
	input.DisallowUnknownFields()
	if err := input.Decode(&asked); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	made := parser.NewParser(parser.Options{})
	given := answer{Errors: []string{}, Tests: [][][]firing{}}
	queries := asked.Queries
	for _, rule := range asked.Rules {
		queries = append(queries, rule.Expr)
	}
	for _, query := range queries {
		if _, err := made.ParseExpr(query); err != nil {
			given.Errors = append(given.Errors, fmt.Sprintf("%s: %v", query, err))
		}
	}
	one := evaluator{parser: made, engine: promql.NewEngine(promql.EngineOpts{
		MaxSamples: samplesMax, Timeout: timeout, LookbackDelta: lookback, Parser: made,
		EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
	})}
	for index, test := range asked.Tests {
		if len(given.Errors) > 0 {
			break
		}
		told, err := one.run(context.Background(), asked.Rules, test)
		if err != nil {
			given.Errors = append(given.Errors, fmt.Sprintf("test %d: %v", index, err))
		}
		given.Tests = append(given.Tests, told)
	}
	if err := json.NewEncoder(os.Stdout).Encode(given); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
