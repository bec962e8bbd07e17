// How many machines were online in the last days.

import { nodesApi } from "../../api/nodes.ts";
import { apiPath } from "../../api/endpoint.ts";
import type { FunctionComponent } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { lastDays } from "../days.ts";
import { historyWords } from "../needs.ts";
import { useResource } from "../resource.ts";
import { query, setQuery } from "../router.ts";
import { timeFormat } from "../times.ts";
import { valueOf } from "./parts.tsx";
import type { Columns } from "./gaps.ts";
import type { Plot } from "./plot.tsx";

const lines = [
  ["all", "quiet"],
  ["online", "good"],
] as const;
/** Choices of days. Two days contain all of yesterday. */
const spans = ["2", "7", "30"] as const;

export function OnlinePlot({ own }: { own: string }) {
  const asked = query.value.get("days") ?? "";
  const days = spans.find((each) => each === asked) ?? "2";
  const { data: history } = useResource(apiPath(nodesApi.online, { slug: own }, { days }), { isCalm: true });
  const [view, setView] = useState<{ Plot: FunctionComponent<Parameters<typeof Plot>[0]> } | undefined>(
    undefined,
  );
  useEffect(() => {
    // Without its file, the words above say the same.
    import("./plot.tsx").then(
      ({ Plot }) => setView({ Plot }),
      () => undefined,
    );
  }, []);
  const [columns, range] = useMemo(() => {
    const points = history?.points ?? [];
    const times = points.map(({ at }) => Date.parse(at) / 1000);
    const drawn: Columns = [times, points.map(({ active }) => active), points.map(({ online }) => online)];
    return [drawn, lastDays(Number(days), Date.now(), times.at(-1))] as const;
    // It is counted every five minutes, and read more often: a plot that is looked at stays.
  }, [days, history?.last?.at]);
  const words = history === undefined ? "" : historyWords(history, minute);
  return (
    <>
      <h2>Online over time</h2>
      <div class="tools">
        <select
          aria-label="Time"
          class="short"
          value={days}
          onChange={(event: Event) => setQuery({ days: valueOf(event) })}
        >
          {spans.map((each) => (
            <option key={each} value={each}>
              last {each} days
            </option>
          ))}
        </select>
        <span class="quiet">{words}</span>
      </div>
      <div class="plot-place">
        {view === undefined || history === undefined || columns[0].length === 0 ? null : (
          <view.Plot
            label={words}
            columns={columns}
            everyS={history.every_s}
            range={range}
            lines={lines}
            file={`${own}-online.csv`}
          />
        )}
      </div>
    </>
  );
}

const minute = (at: number) =>
  timeFormat({ month: "short", day: "numeric", hour: "numeric", minute: "2-digit" }).format(at);
