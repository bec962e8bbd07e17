// The servers of this control plane, for staff: what each says of itself, and its last day.

import { apiPath, type SentOf } from "../../api/endpoint.ts";
import { serversApi, type Server } from "../../api/servers.ts";
import { formatSize } from "../../base/quantities.ts";
import { evenly, lastDays } from "../words/days.ts";
import { useResource } from "../contact/resource.ts";
import { exact, utc } from "../words/times.ts";
import { Spark, Tile } from "../ui/figures.tsx";
import { Page, Panel } from "../ui/page.tsx";
import {
  dated,
  Facts,
  Failure,
  Line,
  Loading,
  TextWithCommands,
  State,
  When,
  type Fact,
} from "../ui/parts.tsx";
import { Export } from "../ui/lists/tools.tsx";
import { backupCommand } from "../needs/backup-command.ts";
import { serversPath } from "../needs/use-needs.ts";

type History = SentOf<typeof serversApi.history>;
type Point = History["hosts"][number]["points"][number];

const hourS = 3600;
const dayS = 24 * hourS;

export function Servers() {
  const { data, error } = useResource(serversPath);
  const { data: history, error: unknown } = useResource(apiPath(serversApi.history, {}), { isCalm: true });
  const servers = data?.servers ?? [];
  const others = data === undefined ? [] : unlisted(data, history);
  const pointsOf = (name: string) => history?.hosts.find(({ host }) => host === name)?.points ?? [];
  const everyS = history?.every_s ?? 300;
  return (
    <Page
      title="Servers"
      fact={servers.length === 0 ? undefined : `${servers.filter((each) => each.running).length} running`}
      terminal={{ command: ["server", "list"], call: ["GET", serversPath] }}
    >
      {data === undefined ? (
        <Loading error={error} />
      ) : (
        <>
          {unknown === undefined ? null : <Failure error={unknown} />}
          {servers.map((server) => (
            <OneServer
              key={server.id}
              host={server.host}
              server={server}
              points={pointsOf(server.host)}
              everyS={everyS}
            />
          ))}
          {others.map((host) => (
            <OneServer key={host} host={host} points={pointsOf(host)} everyS={everyS} />
          ))}
          <div class="two">
            <Backups lastAt={data.last_backup_at} />
            <Answering {...data} />
          </div>
        </>
      )}
    </Page>
  );
}

type Answer = SentOf<typeof serversApi.list>;

/** The one server of a SQLite file is not listed, and neither are former ones, of which there is the last day. */
function unlisted({ servers, answering }: Answer, history: History | undefined): string[] {
  const listed = new Set(servers.map(({ host }) => host));
  const found = [answering.host, ...(history?.hosts ?? []).map(({ host }) => host)];
  return [...new Set(found)].filter((host) => !listed.has(host));
}

function Answering({
  answering: { host, version, started_at },
  database,
}: Pick<Answer, "answering" | "database">) {
  return (
    <Panel title="This page" hasRoom={true}>
      <p>
        <bdi>{host}</bdi> answers this page: version {version}, started {dated(Date.parse(started_at))}.
      </p>
      <p class="mt8">
        Database: {database === "postgres" ? "PostgreSQL" : "SQLite, a file that one server uses"}.
      </p>
    </Panel>
  );
}

const Backups = ({ lastAt }: { lastAt: string | null }) => (
  <Panel title="Backup" hasRoom={true}>
    <p>
      {lastAt === null ? (
        "There is no backup yet."
      ) : (
        <>
          The last backup was made <When at={lastAt} />.
        </>
      )}{" "}
      One a day is good. On the machine of the control plane, with /backup on another disk:
    </p>
    <div class="mt8">
      <Line text={backupCommand} />
    </div>
  </Panel>
);

type ServerProps = {
  host: string;
  /** Undefined: no longer listed. */
  server?: Server | undefined;
  points: readonly Point[];
  everyS: number;
};

function OneServer({ host, server, points, everyS }: ServerProps) {
  const minute = (count: number) => Math.round((count * 60) / everyS);
  return (
    <Panel
      title={<bdi>{host}</bdi>}
      beside={
        server === undefined ? null : (
          <State name={server.running ? "online" : "away"} word={server.running ? "running" : "stopped"} />
        )
      }
      actions={
        points.length === 0 ? null : (
          <Export
            isSmall={true}
            file={`${host}.csv`}
            items={points}
            columns={[
              { title: "Time", text: ({ at }: Point) => utc(Date.parse(at)) },
              { title: "requests", text: ({ requests }: Point) => `${minute(requests)}` },
              { title: "check-ins", text: ({ checkins }: Point) => `${minute(checkins)}` },
            ]}
          />
        )
      }
    >
      {points.length === 0 ? (
        <p class="in quiet">
          The last day: nothing was written yet; each server writes a row a minute, shown by five minutes.
        </p>
      ) : (
        <LastDay points={points} everyS={everyS} minute={minute} />
      )}
      {server === undefined ? null : (
        <div class="in">
          <Facts facts={factsOf(server)} />
        </div>
      )}
    </Panel>
  );
}

type LastDayProps = { points: readonly Point[]; everyS: number; minute(count: number): number };

/** Its figures with their lines, and the rest in words. */
function LastDay({ points, everyS, minute }: LastDayProps) {
  const newest = points.at(-1);
  const secondsOf = (point: Point | undefined) => Date.parse(point?.at ?? "") / 1000;
  const [from, to] = lastDays(1, Date.now(), secondsOf(newest));
  // Hours before the first start would look like an outage.
  const start = Math.max(from, Math.min(secondsOf(points[0]), to - hourS));
  const places = evenly(points, everyS, [start, to]);
  const most = (value: (point: Point) => number | null) =>
    Math.max(0, ...points.map((point) => value(point) ?? 0));
  const tile = (label: string, value: (point: Point) => number | null, say: (value: number) => string) => {
    const shown = newest === undefined ? null : value(newest);
    return (
      <Tile label={label} value={shown === null ? "–" : say(shown)} facts={`at most ${say(most(value))}`}>
        <Spark values={places.map((point) => (point === undefined ? null : value(point)))} />
      </Tile>
    );
  };
  const perMinute = (count: number) => `${minute(count)}`;
  const errors = points.reduce((sum, each) => sum + each.errors, 0);
  const began = start > to - dayS + everyS ? `, since the start at ${exact(start * 1000)}` : "";
  return (
    <>
      <div class="tiles">
        {tile("Requests a minute", ({ requests }) => requests, perMinute)}
        {tile("Check-ins a minute", ({ checkins }) => checkins, perMinute)}
        {tile(
          "99 of 100 answers within",
          ({ p99_ms }) => p99_ms,
          (ms) => `${ms} ms`,
        )}
        {tile("Memory", ({ memory_bytes }) => memory_bytes, formatSize)}
      </div>
      <div class="in">
        <p class="quiet">
          The last day{began}: at most {perMinute(most(({ requests }) => requests))} requests a minute,{" "}
          {errors} errors, at most {most(({ waiting }) => waiting)} check-ins waiting
        </p>
      </div>
    </>
  );
}

const factsOf = (server: Server): readonly Fact[] => [
  ["Version", server.version],
  ["Started", dated(Date.parse(server.started_at))],
  ["Last seen", <When at={server.last_seen_at} />],
  ["Background loops", server.leases.join(", ") || "none"],
  ["Clock ahead", `${server.clock_ahead_ms} ms`],
  ["Notices behind", `${server.notices_behind_ms} ms`],
  [
    "Last error",
    server.last_error === null ? (
      "none"
    ) : (
      <>
        <TextWithCommands text={server.last_error} /> <When at={server.last_error_at} />
      </>
    ),
  ],
];
