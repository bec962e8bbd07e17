// What was in force at a moment: the policy, or who could reach a node and by which rule, from the audit log. Asked for by a
// person only, because the control plane verifies the log while it reads it.

import { useState } from "preact/hooks";
import { apiPath, type AnswerOf } from "../../api/endpoint.ts";
import { type PastReport, pastApi } from "../../api/history/past.ts";
import { given } from "../../base/given.ts";
import { protocolAndPort } from "../../base/quantities.ts";
import { get } from "../contact/api.ts";
import { currentSlug, organization } from "../contact/me.ts";
import { pathOf } from "../frame/router.ts";
import { useNodes } from "../nodes/node-list.ts";
import { Button } from "../ui/button.tsx";
import { FormFailure, Listed, Text, useAction } from "../ui/form.tsx";
import { download } from "../ui/lists/tools.tsx";
import { Table } from "../ui/lists/table.tsx";
import { Page, Panel, Why } from "../ui/page.tsx";
import { Facts, Line } from "../ui/parts.tsx";
import { clockOf, dayOf } from "../words/ago.ts";
import { commandText } from "../words/terminal.ts";
import { exact } from "../words/times.ts";
import { numberText } from "../words/numbers.ts";

type Signed = AnswerOf<typeof pastApi.retrieve>;
type Found = { signed: Signed; report: PastReport };

const minuteMs = 60_000;
const dayMs = 86_400_000;
/** As a field of a time has it, in the browser's zone. */
const fieldOf = (at: number) => `${dayOf(at)}T${clockOf(at)}`;
/** The columns of each table, with their widths in fractions of the whole. */
const accessHeads = { From: 2, To: 2, State: 2, On: 2, Reason: 5, "Groups of its certificate": 3 };
const ruleHeads = { Rule: 1, Direction: 1, On: 2, Peer: 2, Target: 2, Description: 3 };
const flowHeads = { From: 2, On: 1, New: 1, Unanswered: 1, First: 2, Last: 2 };
/** What the field "On" takes: "tcp/5432", "5432", "udp" or "icmp". */
const packetText = /^(?:(tcp|udp|icmp)(?:[ /]|$))?(\d{1,5})?$/;

export function PastPage() {
  const slug = currentSlug.value ?? "";
  // Before the organization there was no policy. The field's text has no seconds: the minute after its creation is whole.
  const earliest = new Date(organization.value?.created_at ?? 0).getTime() + minuteMs;
  const [asked, setAsked] = useState({
    at: fieldOf(Math.max(Date.now() - dayMs, earliest)),
    from: "",
    to: "",
    packet: "",
  });
  const [found, setFound] = useState<Found>();
  const { data: nodes = [] } = useNodes();
  const set = (field: keyof typeof asked) => (text: string) => setAsked({ ...asked, [field]: text.trim() });
  const ms = Date.parse(asked.at);
  const [, protocol, port] = packetText.exec(asked.packet) ?? [];
  const isPacketWrong = asked.packet !== "" && protocol === undefined && port === undefined;
  const lacksTarget = asked.to === "" && asked.from + asked.packet !== "";
  const at = Number.isNaN(ms) ? "" : new Date(ms).toISOString();
  const isComplete = at !== "" && !isPacketWrong && !lacksTarget;
  const query = {
    at,
    ...given({
      to: asked.to || undefined,
      from: asked.from || undefined,
      protocol: protocol as "tcp" | undefined,
      port,
    }),
  };
  const path = apiPath(pastApi.retrieve, { slug }, query);
  const packet = asked.packet === "" ? [] : [asked.packet.replace(" ", "/")];
  const question = asked.to === "" ? ["get", slug] : ["test", slug, asked.from || "any", asked.to, ...packet];
  const command = ["policy", ...question, "--at", at];
  // The command takes no protocol alone.
  const isForTerminal = port !== undefined || protocol === undefined || protocol === "icmp";
  const form = useAction(async () => {
    // The former report must not stand below a refusal.
    setFound(undefined);
    const signed = await get(path);
    setFound({ signed, report: JSON.parse(signed.report) as PastReport });
  });
  const namesLike = (text: string) =>
    nodes.flatMap(({ name }) => (name.includes(text) ? [name] : [])).slice(0, 50);
  return (
    <Page
      title="At a moment"
      above={<a href={pathOf(slug, "access")}>Access</a>}
      terminal={isComplete && isForTerminal ? { command, call: ["GET", path] } : undefined}
    >
      <div class="stackd">
        <Panel title="Who could reach what" hasRoom={true}>
          <form onSubmit={form.submit}>
            <div class="pair">
              <Text
                label="Moment"
                help="In the time zone of this browser."
                value={asked.at}
                set={set("at")}
                control={{ type: "datetime-local", required: true, step: 1 }}
              />
              <Text
                label="On"
                help="Empty: all that was permitted."
                errors={isPacketWrong ? ["Enter tcp/5432, 5432, udp or icmp."] : undefined}
                value={asked.packet}
                set={(packet) => setAsked({ ...asked, packet })}
                control={{ maxlength: 12, placeholder: "tcp/5432", autocomplete: "off" }}
              />
              <Listed
                label="To node"
                help="Empty: the whole policy."
                errors={
                  lacksTarget
                    ? ["Enter the node that was reached, or leave the others empty, too."]
                    : undefined
                }
                offered={namesLike(asked.to)}
                value={asked.to}
                set={set("to")}
              />
              <Listed
                label="From node"
                help="Empty: every node that could reach it."
                offered={namesLike(asked.from)}
                value={asked.from}
                set={set("from")}
              />
            </div>
            <FormFailure error={form.error} />
            <p class="group mt8">
              <Button kind="primary" type="submit" disabled={form.isRunning || !isComplete}>
                {form.isRunning ? "Reading the audit log…" : "Look"}
              </Button>
            </p>
          </form>
        </Panel>
        {found === undefined ? null : <Report slug={slug} {...found} />}
      </div>
    </Page>
  );
}

function Report({ slug, signed, report }: Found & { slug: string }) {
  const { at, policy, chain, doubts } = report;
  const file = `${slug}-${at.replaceAll(/[:.]/g, "-")}.report`;
  return (
    <>
      <div role="status">
        <Why
          kind={doubts.length > 0 ? "bad" : "good"}
          title={
            doubts.length > 0
              ? "Not all of this is certain:"
              : "The audit log has no break, and knows this moment."
          }
          actions={
            <>
              {/* As the command line writes it, so that it can be verified. */}
              <Button
                icon="download"
                onClick={() => download(file, `${signed.report}\n${signed.signature}\n`, "application/json")}
              >
                Download the report
              </Button>
              <Button onClick={() => print()}>Print</Button>
            </>
          }
        >
          {doubts.length === 0 ? null : (
            <ul>
              {doubts.map((each) => (
                <li key={each}>
                  <bdi>{each}</bdi>
                </li>
              ))}
            </ul>
          )}
          <p>Changes by hand in the database count, too.</p>
        </Why>
      </div>
      {policy === null ? (
        <Reached slug={slug} report={report} />
      ) : (
        <Panel title="The policy">
          <pre class="diff" tabindex={0}>
            {policy}
          </pre>
        </Panel>
      )}
      <Panel title="Where it comes from" hasRoom={true}>
        <Facts
          facts={[
            ["Moment", exact(Date.parse(at))],
            ["Events", `${numberText(chain.events)}, each verified`],
            ["Head of the log", <code>{chain.head}</code>],
            ["Archives", chain.archives.join(", ") || "none"],
          ]}
        />
        <p class="help">To verify the report without the control plane:</p>
        <Line
          text={commandText({ command: ["audit", "verify-report", file, "--key", "node-config.json"] })}
        />
      </Panel>
    </>
  );
}

/** Flows of old reports do not say how many were answered: all of them count as answered. */
function Reached({ slug, report }: { slug: string; report: PastReport }) {
  const { access, asked, refused, rules, did } = report;
  return (
    <>
      <Table
        label="Who could reach it"
        title={
          asked.from === null
            ? `${access.length} could reach ${asked.to}, ${refused} could not`
            : `${asked.from} to ${asked.to}`
        }
        heads={accessHeads}
        rows={access.map(({ from, to, allowed, permitted = [], reason, certificates }) => [
          from.name,
          to.name,
          allowed ? "permitted" : "refused",
          permitted.join(", "),
          reason,
          [...new Set(certificates.flatMap(({ groups }) => groups))].join(", "),
        ])}
        empty="No node could."
      />
      {rules.length === 0 ? null : (
        <Table
          label="Rules"
          title="By these rules"
          part="rules"
          path={pathOf(slug, "access")}
          heads={ruleHeads}
          rows={rules.map(({ id, direction, protocol, ports, peer, target, description }) => [
            id,
            direction,
            `${protocol}/${ports}`,
            peer,
            target,
            description,
          ])}
        />
      )}
      {did === null ? (
        <p class="quiet">Flows to {asked.to} on that day: not known.</p>
      ) : (
        <Table
          label="Flows"
          title={`Flows to ${asked.to} on that day`}
          part="did"
          heads={flowHeads}
          rows={did.map(({ from, address, protocol, port, flows, answered = flows, first_at, last_at }) => [
            from?.name ?? address,
            protocolAndPort(protocol, port),
            flows,
            Math.max(0, flows - answered),
            first_at,
            last_at,
          ])}
        />
      )}
    </>
  );
}
