// Routes: networks behind nodes, a row for each router. Offers are approved here, and routers put into maintenance.

import { useState } from "preact/hooks";
import { apiPath, type SentOf } from "../../api/endpoint.ts";
import { nodesApi } from "../../api/nodes.ts";
import { routesApi } from "../../api/paths/routes.ts";
import type { Node } from "../../protocol/node.ts";
import { call, request } from "../contact/api.ts";
import { currentSlug } from "../contact/me.ts";
import { refresh, useList } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { useNodes } from "../nodes/node-list.ts";
import { Button, Words } from "../ui/button.tsx";
import { Confirm, FormDialog } from "../ui/dialog.tsx";
import { Choice, Text, useAction } from "../ui/form.tsx";
import { actionsColumn, linkColumn, List, stateColumn, textColumn } from "../ui/lists/list.tsx";
import { Page } from "../ui/page.tsx";

type Route = SentOf<typeof routesApi.create>;
type Row = Route["routers"][number] & { network: string; at: number };

function stateOf({ approved, maintenance, online, offered, state, why }: Row) {
  if (!approved) return ["waiting", "waits for approval"] as const;
  if (maintenance) return ["waiting", "maintenance"] as const;
  if (!online) return ["away", "away"] as const;
  if (!offered) return ["waiting", "not offered"] as const;
  if (state === "down") return ["attention", "does not answer"] as const;
  if (state === "failed") return ["attention", `not ready: ${why ?? ""}`] as const;
  return state === "ready" ? (["online", "ready"] as const) : (["waiting", "not ready yet"] as const);
}

const actionOf = ({ approved, maintenance }: Row) =>
  approved ? (maintenance ? "Use again" : "Maintain") : "Approve";

export function Routes() {
  const slug = currentSlug.value ?? "";
  const path = apiPath(routesApi.list, { slug });
  const { data, error } = useList(apiPath(routesApi.list, { slug }, { page_size: "1000" }));
  const exits = useList(apiPath(nodesApi.list, { slug }, { exits: "true" }));
  const [asked, setAsked] = useState<Row | undefined>(undefined);
  const [isAdding, setAdding] = useState(false);
  const rows = data
    ?.flatMap(({ network, routers }) => routers.map((each) => ({ ...each, network })))
    .map((each, at) => ({ ...each, at }));
  return (
    <Page
      title="Routes"
      terminal={{ command: ["route", "list", slug], call: ["GET", path] }}
      actions={
        <Button kind="primary" icon="plus" onClick={() => setAdding(true)}>
          <Words first="Add" rest="a route" />
        </Button>
      }
    >
      <List
        label="Routes"
        path={path}
        read={{ data: rows, error }}
        columns={[
          textColumn("network", "Network", 2, ({ network }: Row) => network),
          linkColumn(
            "router",
            "Router",
            2,
            ({ node_name }: Row) => node_name,
            ({ node }: Row) => pathOf(slug, "nodes", node),
          ),
          textColumn("metric", "Metric", 1, ({ metric }: Row) => `${metric}`),
          stateColumn(3, stateOf),
          textColumn("behind", "There", 3, ({ behind, masquerade, watch }: Row) =>
            [behind, masquerade === true && "masquerades", watch && `asks ${watch}`]
              .filter(Boolean)
              .join(", "),
          ),
          actionsColumn(1, (row: Row) => (
            <Button
              isSmall={true}
              kind="ghost"
              label={`${actionOf(row)} ${row.network} by ${row.node_name}`}
              onClick={() => setAsked(row)}
            >
              {actionOf(row)}
            </Button>
          )),
        ]}
        keyOf={({ at }: Row) => at}
        empty="None. On a node in the network: sudo agent up --advertise 192.168.5.0/24"
      />
      <List
        label="Exits"
        title="Exits"
        part="exits"
        path={path}
        read={exits}
        columns={[
          linkColumn(
            "exit",
            "Exit",
            2,
            ({ name }: Node) => name,
            ({ id }: Node) => pathOf(slug, "nodes", id),
          ),
          textColumn("groups", "For", 2, ({ exit_groups: groups = [] }: Node) => groups.join(", ")),
          // Nodes do not say what their root offers.
          textColumn("state", "Node", 1, ({ online }: Node) => (online ? "online" : "away")),
        ]}
        keyOf={({ id }: Node) => id}
        empty="None. On the node: sudo agent up --advertise-exit. Then name the groups, on the page of the node: Edit."
      />
      {isAdding ? <Add path={path} close={() => setAdding(false)} /> : null}
      {asked === undefined ? null : <Change row={asked} path={path} close={() => setAsked(undefined)} />}
    </Page>
  );
}

function Add({ path, close }: { path: string; close(): void }) {
  const slug = currentSlug.value ?? "";
  const { data: nodes = [] } = useNodes();
  const [network, setNetwork] = useState("");
  const [router, setRouter] = useState("");
  const body = { network, via: nodes.flatMap(({ id, name }) => (name === router ? id : [])) };
  const form = useAction(async () => {
    await call(routesApi.create, { slug }, body);
    await refresh(path);
    close();
  });
  return (
    <FormDialog
      title="Add a route"
      action="Add the route"
      hasUnsaved={network + router !== ""}
      form={form}
      close={close}
      shown={["network"]}
      disabled={body.via.length === 0}
      terminal={{
        command: ["route", "create", slug, network, "--via", router],
        call: ["POST", path, body],
      }}
    >
      <Text
        label="Network"
        errors={form.error?.fields["network"]}
        value={network}
        set={setNetwork}
        control={{ required: true, placeholder: "192.168.5.0/24" }}
      />
      <Choice
        label="Router"
        help="On it: sudo agent up --advertise, with the network."
        value={router}
        set={setRouter}
        choices={[
          ["", "Choose a node"],
          ...nodes.flatMap(({ name, phone }) => (phone === null ? [[name, name] as const] : [])),
        ]}
      />
    </FormDialog>
  );
}

function Change({ row, path, close }: { row: Row; path: string; close(): void }) {
  const slug = currentSlug.value ?? "";
  const { network, node, node_name: name, approved, maintenance } = row;
  const on = { network, via: [node] };
  const words = ["route", approved ? "update" : "create", slug, network, "--via", name];
  const flag = maintenance ? "--no-maintenance" : "--maintenance";
  const effects = {
    Approve: `All other nodes route ${network} through ${name}. Rules that reach ${name} reach that network, too.`,
    Maintain: `Other routers of ${network} are used, as long as one of them works. Open TCP connections stay until they end, an hour at most.`,
    "Use again": `Nodes use ${name} again for ${network}.`,
  };
  return (
    <Confirm
      title={`${actionOf(row)}: ${network} by ${name}?`}
      action={actionOf(row)}
      isDanger={false}
      effect={effects[actionOf(row)]}
      close={close}
      command={approved ? [...words, flag] : words}
      sends={
        approved
          ? request(routesApi.update, { slug }, { ...on, maintenance: !maintenance })
          : request(routesApi.create, { slug }, on)
      }
      changes={path}
    />
  );
}
