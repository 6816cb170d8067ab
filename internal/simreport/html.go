package simreport

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/rvtsim/rvtsim/internal/report"
)

// WriteHTML prints a page that needs nothing but itself: the figures of every seed and
// plots of the first ones.
func WriteHTML(w io.Writer, rs []*Result) error {
	page := struct {
		Title string
		Seeds []seedPage
		Many  bool
		All   []*Result
	}{Title: rs[0].Name, Many: len(rs) > 1, All: rs}
	for _, r := range rs[:min(len(rs), mostPlotted)] {
		s := seedPage{R: r}
		var b bytes.Buffer
		WriteText(&b, r)
		s.Text = b.String()
		for _, p := range plotsOf(r) {
			svg, err := render(p)
			if err != nil {
				return err
			}
			s.Plots = append(s.Plots, svg)
		}
		page.Seeds = append(page.Seeds, s)
	}
	return pageTemplate.Execute(w, page)
}

// mostPlotted is for how many seeds the page has plots.
const mostPlotted = 16

type seedPage struct {
	R     *Result
	Text  string
	Plots []template.HTML
}

// curve is a line of a plot.
type curve struct {
	name   string
	points []Point
}

// figure is a plot before it is drawn.
type figure struct {
	title, x, y string
	curves      []curve
	steps       bool
	logX        bool
}

// plotsOf chooses what to plot: throughput and the longest queue over time, and how
// completion times are spread.
func plotsOf(r *Result) (figures []figure) {
	step := float64(r.Series.StepNS) / 1e9
	over := func(values []uint64, scale float64) (points []Point) {
		for i, v := range values {
			points = append(points, Point{step * float64(i+1), float64(v) * scale})
		}
		return points
	}
	scale, unit := timeScale(step * float64(len(r.Series.Queue)))
	rate := figure{title: "Throughput, as messages complete", x: "time (" + unit + ")", y: "payload completed (Gbit/s)", steps: true}
	lat := figure{title: "Completion time of work requests", x: "time (us)", y: "share", logX: true}
	fin := figure{title: "Completion time of flows", x: "time (us)", y: "share"}
	for i := range r.Traffic {
		t := &r.Traffic[i]
		rate.add(t.Name, over(r.Series.RateBPS[t.Name], 1e-9), scale)
		lat.add(t.Name, t.cdf, 1e6)
		if t.Flows > 1 {
			fin.add(t.Name, t.finishCDF, 1e6)
		}
	}
	queue := figure{title: "Longest queue", x: "time (" + unit + ")", y: "bytes that wait (KiB)", steps: true}
	queue.add("", over(r.Series.Queue, 1.0/1024), scale)
	for _, f := range []figure{rate, queue, lat, fin} {
		if len(f.curves) > 0 {
			figures = append(figures, f)
		}
	}
	return figures
}

// mostCurves is how many curves one plot shows.
const mostCurves = 8

func (f *figure) add(name string, points []Point, scaleX float64) {
	if len(points) == 0 || len(f.curves) == mostCurves {
		return
	}
	scaled := make([]Point, len(points))
	for i, p := range points {
		scaled[i] = Point{p.X * scaleX, p.Y}
	}
	f.curves = append(f.curves, curve{name, scaled})
}

// timeScale chooses the unit for an axis that ends at seconds.
func timeScale(seconds float64) (float64, string) {
	switch {
	case seconds < 1e-3:
		return 1e6, "us"
	case seconds < 1:
		return 1e3, "ms"
	}
	return 1, "s"
}

var palette = []color.RGBA{
	{0x1f, 0x6f, 0xb4, 255}, {0xd9, 0x5f, 0x02, 255}, {0x1b, 0x9e, 0x77, 255}, {0x75, 0x70, 0xb3, 255},
	{0xe7, 0x29, 0x8a, 255}, {0x66, 0xa6, 0x1e, 255}, {0xa6, 0x76, 0x1d, 255}, {0x66, 0x66, 0x66, 255},
}

// render draws a figure as SVG.
func render(f figure) (template.HTML, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = f.title, f.x, f.y
	p.Y.Min = 0
	p.Legend.Top = true
	p.Legend.XOffs, p.Legend.Padding, p.Legend.ThumbnailWidth = -vg.Millimeter, 1.5*vg.Millimeter, 6*vg.Millimeter
	p.Add(plotter.NewGrid())
	for i, c := range f.curves {
		xy := make(plotter.XYs, len(c.points))
		for k, pt := range c.points {
			xy[k] = plotter.XY{X: pt.X, Y: pt.Y}
		}
		line, err := plotter.NewLine(xy)
		if err != nil {
			return "", err
		}
		line.Color, line.Width = palette[i%len(palette)], vg.Points(1.2)
		if f.steps {
			line.StepStyle = plotter.PreStep
		}
		p.Add(line)
		if c.name != "" {
			p.Legend.Add(c.name, line)
		}
	}
	p.Y.Min = 0
	if p.Y.Max <= 0 {
		p.Y.Max = 1
	}
	p.Y.Max *= 1.05 + 0.08*float64(len(f.curves)) // room for the legend
	if f.steps {
		p.X.Min = 0
	}
	p.Y.Tick.Marker = shortTicks{}
	if f.logX {
		p.X.Min = math.Max(p.X.Min, 1e-3)
		p.X.Max = math.Max(p.X.Max, p.X.Min*10)
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	c := vgsvg.New(14*vg.Centimeter, 8.5*vg.Centimeter)
	p.Draw(draw.Crop(draw.New(c), 0, -4*vg.Millimeter, 0, 0)) // the last label needs room
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	svg := b.String()
	if i := strings.Index(svg, "<svg"); i > 0 {
		svg = svg[i:] // without the prolog, which has no place inside a page
	}
	return template.HTML(svg), nil // made above from numbers and escaped by the canvas
}

// shortTicks are the usual ticks with numbers as short as they can be: 2500, not 2500.00.
type shortTicks struct{}

func (shortTicks) Ticks(lo, hi float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(lo, hi)
	for i := range ticks {
		if !ticks[i].IsMinor() {
			ticks[i].Label = strconv.FormatFloat(ticks[i].Value, 'g', 6, 64)
		}
	}
	return ticks
}

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"dur":   func(d time.Duration) string { return report.Duration(d) },
	"count": report.Count,
	"rate":  func(r *Result) string { return report.Rate(total(r)) },
	"hex":   func(v uint64) string { return fmt.Sprintf("%#x", v) },
}).Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Title}} - rvtsim sim</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 76em; padding: 0 1em; color: #222; background: #fff }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em; border-top: 1px solid #ddd; padding-top: 1em }
pre { background: #f6f6f4; padding: .8em 1em; overflow-x: auto; font-size: 13px; line-height: 1.35 }
table { border-collapse: collapse } td, th { padding: .2em .9em .2em 0; text-align: right } td:first-child, th:first-child { text-align: left }
.plots { display: flex; flex-wrap: wrap; gap: 1em } .plots svg { max-width: 100%; height: auto }
.ok { color: #187a3c } .bad { color: #b3261e; font-weight: 600 }
</style></head><body>
<h1>{{.Title}}</h1>
{{if .Many}}<table><tr><th>seed</th><th>result</th><th>virtual time</th><th>events</th><th>payload rate</th><th>resent</th><th>digest</th></tr>
{{range .All}}<tr><td>{{.Seed}}</td><td>{{if .OK}}<span class="ok">ok</span>{{else}}<span class="bad">FAILED</span>{{end}}</td><td>{{dur .Elapsed}}</td><td>{{count .Events}}</td><td>{{rate .}}</td><td>{{count .Losses.Resent}}</td><td><code>{{.Digest}}</code></td></tr>
{{end}}</table>{{end}}
{{range .Seeds}}<h2>Seed {{.R.Seed}}: {{if .R.OK}}<span class="ok">ok</span>{{else}}<span class="bad">FAILED</span>{{end}}</h2>
{{range .R.Problems}}<p class="bad">{{.}}</p>{{end}}
<div class="plots">{{range .Plots}}{{.}}{{end}}</div>
<pre>{{.Text}}</pre>
{{end}}</body></html>
`))

// total is the payload rate over the whole run.
func total(r *Result) int64 {
	bytes := uint64(0)
	for i := range r.Traffic {
		bytes += r.Traffic[i].Bytes
	}
	if r.Elapsed <= 0 {
		return 0
	}
	return int64(float64(bytes) * 8 / r.Elapsed.Seconds())
}
