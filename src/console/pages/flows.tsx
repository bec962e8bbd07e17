// Flows: who talks to whom on what, and when rules were used last. Read only when a person asks: each reading is an event, and
// lists are read again after events.

import { useState } from "preact/hooks";
import { apiPath, type AnswerOf } from "../../api/endpoint.ts";
import { flowsApi } from "../../api/paths.ts";
import { get } from "../contact/api.ts";
import { slug } from "../contact/me.ts";
import { Button } from "../ui/button.tsx";
import { FormFailure, useAction } from "../ui/form.tsx";
import { List, textColumn } from "../ui/lists/list.tsx";
import { Page } from "../ui/page.tsx";
import { Empty } from "../ui/parts.tsx";

type Flows = AnswerOf<typeof flowsApi.list>;
type Rule = Flows["rules"][number];
type Row = Flows["flows"][number] & { at: number };

export function FlowsPage() {
  const own = slug.value ?? "";
  const path = apiPath(flowsApi.list, { slug: own });
  const [found, keep] = useState<Flows | undefined>(undefined);
  const read = useAction(async () =>
    keep(await get(apiPath(flowsApi.list, { slug: own }, { limit: "1000" }))),
  );
  const rows = found?.flows.map((each, at) => ({ ...each, at }));
  return (
    <Page title="Flows" terminal={{ command: ["flow", "list", own], call: ["GET", path] }}>
      <FormFailure error={read.error} />
      {found === undefined || rows === undefined ? (
        <Empty text="Who talks to whom. Each reading is an event of the audit log.">
          <Button kind="primary" disabled={read.isRunning} onClick={() => void read.run()}>
            Read the flows
          </Button>
        </Empty>
      ) : (
        <>
          <List
            label="Flows"
            title="Flows of 7 days"
            path={path}
            read={{ data: rows, error: undefined }}
            columns={[
              textColumn("from", "From", 2, ({ from_name, address }: Row) => from_name ?? address),
              textColumn("to", "To", 2, ({ to_name, address }: Row) => to_name ?? address),
              textColumn(
                "on",
                "On",
                1,
                ({ protocol, port }: Row) => `${protocol}${port === null ? "" : `/${port}`}`,
              ),
              textColumn("flows", "New", 1, ({ flows }: Row) => `${flows}`),
              textColumn("unanswered", "Unanswered", 1, ({ unanswered }: Row) => `${unanswered}`),
              textColumn("seen", "Seen by", 1, ({ seen_by }: Row) => seen_by),
              textColumn("last", "Last", 2, ({ last_at }: Row) => last_at),
            ]}
            keyOf={({ at }: Row) => at}
            empty={
              found.wanted
                ? "None is reported."
                : "Nodes are not asked for them: Settings, Nodes report their flows."
            }
          />
          <List
            label="Uses of rules"
            title="Uses of rules"
            part="rules"
            path={path}
            read={{ data: found.rules, error: undefined }}
            columns={[
              textColumn("rule", "Rule", 1, ({ id }: Rule) => `${id}`),
              textColumn("used", "Last use", 2, ({ last_at }: Rule) => last_at ?? "none"),
              textColumn("flows", "Flows", 1, ({ flows }: Rule) => `${flows}`),
              textColumn("nodes", "By nodes", 1, ({ nodes }: Rule) => `${nodes}`),
            ]}
            keyOf={({ id }: Rule) => id}
            empty="None."
          />
        </>
      )}
    </Page>
  );
}
