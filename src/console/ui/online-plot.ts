// How many machines were online in the last days.

import type { FunctionComponent } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { ApiError, get, org } from "../api.ts";
import { lastDays } from "../days.ts";
import { html } from "../html.ts";
import { columnsOf, historyWords, type History } from "../needs.ts";
import { query, setQuery } from "../router.ts";
import { timeFormat, whileSeen } from "../times.ts";
import { valueOf } from "./parts.ts";
import type { Plot } from "./plot.ts";

/** It is counted every five minutes. */
const readEveryMs = 60_000;
const lines = [
  ["all", "quiet"],
  ["online", "good"],
] as const;
const spans = [
  ["1", "last day"],
  ["7", "last 7 days"],
  ["30", "last 30 days"],
] as const;

function useHistory(own: string, days: string): History | undefined {
  const [history, setHistory] = useState<History | undefined>(undefined);
  useEffect(() => {
    const over = new AbortController();
    const read = () => {
      get<History>(org(own, `online/?days=${days}`), over.signal).then(setHistory, (error: unknown) => {
        // The bar says that the control plane is away; the next reading follows.
        if (!(error instanceof ApiError) && !over.signal.aborted) throw error;
      });
    };
    const end = whileSeen(read, readEveryMs);
    return () => {
      end();
      over.abort();
    };
  }, [own, days]);
  return history;
}

export function OnlinePlot({ own }: { own: string }) {
  const asked = query.value.get("days") ?? "1";
  const days = spans.some(([each]) => each === asked) ? asked : "1";
  const history = useHistory(own, days);
  const [view, setView] = useState<{ plot: FunctionComponent<Parameters<typeof Plot>[0]> } | undefined>(
    undefined,
  );
  useEffect(() => {
    // Without its file, the words above say the same.
    import("./plot.ts").then(
      ({ Plot: plot }) => setView({ plot }),
      () => undefined,
    );
  }, []);
  const [columns, range] = useMemo(() => {
    const [times, online = [], active = []] = columnsOf(history?.points ?? [], history?.every_s ?? 300);
    const drawn: [number[], ...(number | null)[][]] = [times, active, online];
    return [drawn, lastDays(Number(days), Date.now(), times.at(-1))] as const;
  }, [history]);
  const points = history?.points ?? [];
  const words = history === undefined ? "" : historyWords(history, minute);
  return html`<h2>Online over time</h2>
    <div class="tools">
      <select
        aria-label="Time"
        class="short"
        value=${days}
        onChange=${(event: Event) => setQuery({ days: valueOf(event) === "1" ? undefined : valueOf(event) })}
      >
        ${spans.map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`)}
      </select>
      <span class="quiet">${words}</span>
    </div>
    <div class="plot-place">
      ${view === undefined || points.length === 0 ? null : html`<${view.plot} label=${words} columns=${columns} range=${range} lines=${lines} />`}
    </div>`;
}

const minute = (at: number) =>
  timeFormat({ month: "short", day: "numeric", hour: "numeric", minute: "2-digit" }).format(at);
