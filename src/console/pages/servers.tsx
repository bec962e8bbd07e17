// The servers of this control plane, for staff: what each says of itself, and its last day.

import { apiPath, type SentOf } from "../../api/endpoint.ts";
import { serversApi, type Server } from "../../api/servers.ts";
import { useResource } from "../contact/resource.ts";
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
import { LastDay } from "./last-day.tsx";
import { countColumns, type Point } from "./server-figures.ts";
import { utc } from "../words/times.ts";
import { serversPath } from "../needs/use-needs.ts";

export function Servers() {
  const { data, error } = useResource(serversPath);
  const { data: history, error: historyError } = useResource(apiPath(serversApi.history, {}), {
    isCalm: true,
  });
  const servers = data?.servers ?? [];
  const others = data === undefined ? [] : unlisted(data, history);
  const pointsOf = (name: string) => history?.hosts.find(({ host }) => host === name)?.points ?? [];
  // Until the history is read, no point needs it.
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
          {historyError === undefined ? null : <Failure error={historyError} />}
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
function unlisted(
  { servers, answering }: Answer,
  history: SentOf<typeof serversApi.history> | undefined,
): string[] {
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
            columns={[{ title: "Time", text: ({ at }) => utc(Date.parse(at)) }, ...countColumns]}
          />
        )
      }
    >
      {points.length === 0 ? (
        <p class="in quiet">No figures of the last day yet: a server writes them every minute.</p>
      ) : (
        <LastDay points={points} everyS={everyS} />
      )}
      {server === undefined ? null : (
        <div class="in">
          <Facts facts={factsOf(server)} />
        </div>
      )}
    </Panel>
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
