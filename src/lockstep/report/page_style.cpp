#include "lockstep/report/page.h"

namespace lockstep::report {

std::string style_css() {
  return R"(
:root{--page:#f6f7f9;--card:#fff;--text:#1c2430;--soft:#5d6877;--line:#dfe3e8;--warn:#9a4a00;--mark:#fff3d6;
--c0:#1663c7;--c1:#c8374a;--c2:#1f8a48;--c3:#b06a00;--c4:#7a4bd0;--c5:#00808c;--c6:#b03a86;--c7:#5b6673}
@media(prefers-color-scheme:dark){:root{--page:#12161c;--card:#1b2129;--text:#e6eaf0;--soft:#98a3b3;--line:#2f3843;
--warn:#ffb066;--mark:#3a3118;--c0:#6aa9ff;--c1:#ff7b8b;--c2:#5fd08a;--c3:#f0ad4e;--c4:#b79bff;--c5:#4fd0dc;--c6:#f286c9;
--c7:#a9b4c2}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:1280px;padding:0 12px 24px;background:var(--page);color:var(--text);
font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{font-size:1.35rem;margin:16px 4px 10px}
h2{font-size:1.05rem;margin:0 0 8px}
h3{font-size:.95rem;margin:12px 0 4px}
h2,h3,dd,th,td,li,label{overflow-wrap:anywhere}
small{color:var(--soft);font-size:.8rem;font-weight:400}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}
.c4{--c:var(--c4)}.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}
.dot{display:inline-block;width:.7em;height:.7em;border-radius:50%;background:var(--c);margin-right:.45em;flex:none}
nav{position:sticky;top:0;z-index:1;display:flex;flex-wrap:wrap;gap:4px 16px;padding:8px 4px;margin-bottom:8px;
max-height:30vh;overflow:auto;background:var(--page);border-bottom:1px solid var(--line)}
nav label{display:inline-flex;align-items:center;gap:4px;min-height:28px;max-width:100%;cursor:pointer}
nav bdi{max-width:26em;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.cards,.charts{display:grid;gap:12px;margin-bottom:12px}
.cards{grid-template-columns:repeat(auto-fit,minmax(min(100%,280px),1fr))}
.charts{grid-template-columns:repeat(auto-fill,minmax(min(100%,370px),1fr))}
article,figure,main>section:not(.cards):not(.charts){background:var(--card);border:1px solid var(--line);
border-radius:10px;padding:12px 14px;margin:0 0 12px;min-width:0}
.cards>article,.charts>figure{margin:0}
dl{display:grid;grid-template-columns:fit-content(48%) 1fr;gap:2px 14px;margin:0}
dt{color:var(--soft);overflow-wrap:anywhere}
dd{margin:0;font-variant-numeric:tabular-nums}
.warn{color:var(--warn);font-weight:600}
.problems{margin:10px 0 0;padding:8px 10px 8px 26px;background:var(--mark);border-radius:6px;font-size:.88rem}
.note{color:var(--soft);margin:4px}
figcaption{font-weight:600;margin-bottom:4px}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font-size:11px;fill:var(--soft);font-variant-numeric:tabular-nums}
.axes path{stroke:var(--line);fill:none}
.axes .base{stroke:var(--soft)}
.curve .line{fill:none;stroke:var(--c);stroke-width:1.6;stroke-linejoin:round}
.curve .band{fill:var(--c);opacity:.18}
.curve circle{fill:var(--c)}
.strip{fill:transparent}
.tip{display:none;pointer-events:none}
.spot:hover .tip{display:inline}
.tip path{stroke:var(--soft);stroke-dasharray:2 3}
.tip rect{fill:var(--card);stroke:var(--line)}
.tip text{fill:var(--text)}
.tip text[class]{fill:var(--c);font-weight:600}
.lines{white-space:pre-wrap;overflow-wrap:anywhere;font:.78rem/1.5 ui-monospace,"DejaVu Sans Mono",monospace}
.lines div{padding-left:5ch;text-indent:-5ch}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.88rem}
th,td{text-align:left;vertical-align:top;padding:4px 10px 4px 0;border-top:1px solid var(--line)}
thead th{border-top:0}
tbody th{font-weight:500}
th:first-child{min-width:11.5em}
td,thead th+th{min-width:11em}
td small{display:block}
.differs{background:var(--mark)}
summary{cursor:pointer;padding:8px 0;color:var(--soft)}
footer{color:var(--soft);font-size:.82rem;margin:8px 4px}
@media print{nav{position:static}article,figure{break-inside:avoid}}
)";
}

}  // namespace lockstep::report
