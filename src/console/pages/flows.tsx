// Flows: who talks to whom on what, and when rules were used last. Read only when a person asks: each reading is an event, and
// lists are read again after events.

import { useState } from "preact/hooks";
import { apiPath, type AnswerOf } from "../../api/endpoint.ts";
import { flowsApi } from "../../api/flows.ts";
import { protocolAndPort } from "../../base/quantities.ts";
import { get } from "../contact/api.ts";
import { currentSlug } from "../contact/me.ts";
import { pathOf } from "../frame/router.ts";
import { Button } from "../ui/button.tsx";
import { FormFailure, useAction } from "../ui/form.tsx";
import { Table } from "../ui/lists/table.tsx";
import { Page } from "../ui/page.tsx";
import { Empty } from "../ui/parts.tsx";

type Flows = AnswerOf<typeof flowsApi.list>;

/** The titles of the columns, each with its width in fractions of the whole. */
const flowHeads = { From: 2, To: 2, On: 1, New: 1, Unanswered: 1, "Seen by": 1, Last: 2 };
const useHeads = { Rule: 1, "Last use": 2, Flows: 1, "By nodes": 1 };

export function FlowsPage() {
  const slug = currentSlug.value ?? "";
  const path = apiPath(flowsApi.list, { slug });
  const [found, setFound] = useState<Flows>();
  const empty = found?.wanted ? "None." : "Unknown.";
  const read = useAction(async () =>
    setFound(await get(apiPath(flowsApi.list, { slug }, { limit: "1000" }))),
  );
  return (
    <Page
      title="Flows"
      above={<a href={pathOf(slug, "access")}>Access</a>}
      terminal={{ command: ["flow", "list", slug], call: ["GET", path] }}
    >
      <FormFailure error={read.error} />
      {found === undefined ? (
        <Empty text="Who talks to whom. Each reading is an event of the audit log.">
          <Button kind="primary" disabled={read.isRunning} onClick={() => void read.run()}>
            Read the flows
          </Button>
        </Empty>
      ) : (
        <>
          {found.wanted ? null : (
            <p class="quiet">
              Nodes are not asked for flows:{" "}
              <a href={`${pathOf(slug, "settings")}#reports`}>Settings, Nodes report their flows</a>
            </p>
          )}
          <Table
            label="Flows"
            title="Flows of 7 days"
            path={path}
            heads={flowHeads}
            rows={found.flows.map(textsOf)}
            empty={empty}
          />
          <Table
            label="Uses of rules"
            title="Uses of rules"
            part="rules"
            path={path}
            heads={useHeads}
            empty={empty}
            rows={found.rules.map(({ id, last_at, flows, nodes }) => [id, last_at ?? "none", flows, nodes])}
          />
        </>
      )}
    </Page>
  );
}

/** A side without a name is an address that no node had for the whole interval. */
function textsOf(flow: Flows["flows"][number]): (string | number)[] {
  const { from_name, to_name, address, protocol, port, flows, unanswered, seen_by, last_at } = flow;
  const on = protocolAndPort(protocol, port);
  return [from_name ?? address, to_name ?? address, on, flows, unanswered, seen_by, last_at];
}
