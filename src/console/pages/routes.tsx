// Routes: networks behind nodes, a row for each router, and exits to the internet. Offers are approved here, routers put into
// maintenance, and what is left to do on machines is said in whole lines.

import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { apiPath, type SentOf } from "../../api/endpoint.ts";
import { nodesApi } from "../../api/nodes.ts";
import { routesApi } from "../../api/paths/routes.ts";
import type { Node } from "../../protocol/node.ts";
import { request } from "../contact/api.ts";
import { currentSlug } from "../contact/me.ts";
import { Next, NextSteps, type Way } from "../node/next-steps.tsx";
import { partsOf, sentencesOf } from "../words/field-parts.ts";
import { GroupsField } from "./groups-field.tsx";
import { useList, type Resource } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { useNodes } from "../nodes/node-list.ts";
import { Button, Words } from "../ui/button.tsx";
import { Confirm, FormDialog } from "../ui/dialog.tsx";
import { Choice, Text, useSending } from "../ui/form.tsx";
import { actionsColumn, linkColumn, List, stateColumn, textColumn } from "../ui/lists/list.tsx";
import { Page } from "../ui/page.tsx";

type Route = SentOf<typeof routesApi.create>;
/** `place`: in the list, from 0. */
type Row = Route["routers"][number] & { network: string; place: number };

/** The state of a router. In this order: each reason makes those below it meaningless. */
function stateOf({ approved, maintenance, online, offered, state, why }: Row) {
  if (!approved) return ["waiting", "waits for approval"] as const;
  if (maintenance) return ["waiting", "maintenance"] as const;
  if (!online) return ["away", "away"] as const;
  if (!offered) return ["waiting", "not offered"] as const;
  if (state === "down") return ["attention", "does not answer"] as const;
  if (state === "failed") return ["attention", `not ready: ${why ?? ""}`] as const;
  return state === "ready" ? (["online", "ready"] as const) : (["waiting", "not ready yet"] as const);
}

/** What the machine said of its network. */
const thereOf = ({ behind, masquerade, watch }: Row) =>
  [behind, masquerade === true && "masquerades", watch && `asks ${watch}`].filter(Boolean).join(", ");

function actionOf({ approved, maintenance }: Row) {
  if (!approved) return "Approve";
  return maintenance ? "Use again" : "Maintain";
}

export function Routes() {
  const slug = currentSlug.value ?? "";
  const path = apiPath(routesApi.list, { slug });
  const { data, error } = useList(apiPath(routesApi.list, { slug }, { page_size: "1000" }));
  const exits = useList(apiPath(nodesApi.list, { slug }, { exits: "true" }));
  const [asked, setAsked] = useState<Row>();
  const [adding, setAdding] = useState<"route" | "exit">();
  const [next, setNext] = useState<Way>();
  /** Opens the commands for the machine. `of`: what they are for. */
  const steps = (way: Way, of: string) => (
    <Button isSmall={true} kind="ghost" label={`Commands for ${of}`} onClick={() => setNext(way)}>
      Commands
    </Button>
  );
  const rows = data
    ?.flatMap(({ network, routers }) => routers.map((each) => ({ ...each, network })))
    .map((each, place) => ({ ...each, place }));
  return (
    <Page
      title="Routes"
      terminal={{ command: ["route", "list", slug], call: ["GET", path] }}
      actions={
        <Button kind="primary" icon="plus" onClick={() => setAdding("route")}>
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
          {
            ...textColumn("behind", "There", 3, thereOf),
            cell: (row: Row) =>
              row.offered ? (
                <bdi title={thereOf(row)}>{thereOf(row)}</bdi>
              ) : (
                steps({ name: row.node_name, networks: [row.network] }, `${row.network} by ${row.node_name}`)
              ),
          },
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
        keyOf={({ place }: Row) => place}
        empty="None. Add one: a node in the network becomes its router."
      />
      <Exits path={path} read={exits} steps={steps} add={() => setAdding("exit")} />
      {adding === undefined ? null : (
        <Add
          isExit={adding === "exit"}
          path={path}
          exits={exits.data}
          close={(way) => {
            setAdding(undefined);
            setNext(way);
          }}
        />
      )}
      {next === undefined ? null : (
        <Next title={`On ${next.name}`} way={next} close={() => setNext(undefined)} />
      )}
      {asked === undefined ? null : <Change row={asked} path={path} close={() => setAsked(undefined)} />}
    </Page>
  );
}

type ExitsProps = {
  path: string;
  read: Resource<readonly Node[]>;
  steps(way: Way, of: string): VNode;
  add(): void;
};

function Exits({ path, read, steps, add }: ExitsProps) {
  const slug = currentSlug.value ?? "";
  return (
    <List
      label="Exits"
      title="Exits"
      part="exits"
      path={path}
      read={read}
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
        actionsColumn(1, ({ name, exit_groups: groups = [] }: Node) => steps({ name, groups }, name)),
      ]}
      keyOf={({ id }: Node) => id}
      empty="None. Add one: other nodes reach the internet by it."
    >
      <Button isSmall={true} icon="plus" onClick={add}>
        <Words first="Add" rest="an exit" />
      </Button>
    </List>
  );
}

type AddProps = {
  isExit: boolean;
  path: string;
  /** Undefined: not read. */
  exits: readonly Node[] | undefined;
  /** With what is left to do. */
  close(way?: Way): void;
};

/** A router of a network, or an exit for groups. */
function Add({ isExit, path, exits, close }: AddProps) {
  const slug = currentSlug.value ?? "";
  const { data: nodes = [] } = useNodes();
  const [typed, setTyped] = useState("");
  const [name, setName] = useState("");
  // The id of the chosen node, as a list: a route may have several routers.
  const via = nodes.flatMap((each) => (each.name === name ? each.id : []));
  const groups = partsOf(typed);
  const present = exits?.find(({ id }) => id === via[0])?.exit_groups ?? [];
  const exit = { exit_groups: [...new Set([...present, ...groups])] };
  const route = { network: typed.trim(), via };
  const way = isExit ? { name, groups } : { name, networks: [typed.trim()] };
  const isWhole = via.length > 0 && groups.length > 0;
  const node = { slug, id: via[0] ?? 0 };
  const form = useSending<unknown>(
    isExit ? request(nodesApi.update, node, exit) : request(routesApi.create, { slug }, route),
    isExit ? apiPath(nodesApi.list, { slug }) : path,
    () => close(way),
  );
  const fields = form.error?.fields;
  const what = isExit ? "exit" : "route";
  return (
    <FormDialog
      title={`Add ${isExit ? "an exit" : "a route"}`}
      action={`Add the ${what}`}
      hasUnsaved={typed + name !== ""}
      form={form}
      close={() => close()}
      shown={["network", "exit_groups"]}
      // The groups of an exit are sent as a whole: those that it has must be known.
      disabled={!isWhole || (isExit && exits === undefined)}
      command={
        isExit
          ? ["node", "update", slug, name, ...groups.flatMap((group) => ["--add-exit-group", group])]
          : ["route", "create", slug, typed, "--via", name]
      }
    >
      {isExit ? (
        <GroupsField
          label="For the groups"
          help="Separated by commas; any: all nodes."
          errors={sentencesOf(fields, "exit_groups", groups)}
          value={typed}
          set={setTyped}
        />
      ) : (
        <Text
          label="Network"
          errors={fields?.["network"]}
          value={typed}
          set={setTyped}
          control={{ required: true, placeholder: "192.168.5.0/24" }}
        />
      )}
      <Choice
        label={isExit ? "Exit" : "Router"}
        value={name}
        set={setName}
        choices={[
          ["", "Choose a node"],
          ...nodes.flatMap(({ name, phone }) => (phone === null ? [[name, name] as const] : [])),
        ]}
      />
      {isWhole ? <NextSteps {...way} /> : null}
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
