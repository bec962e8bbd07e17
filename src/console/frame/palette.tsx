// The command palette (Ctrl K): pages, actions, organizations, and nodes by name, alias or address. And the list of all
// keys (?). Loaded when the first page is there.

import { nodesApi } from "../../api/nodes.ts";
import { apiPath } from "../../api/endpoint.ts";
import type { VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, get } from "../contact/api.ts";
import {
  isAdmin,
  mayAddOwn,
  me,
  organizations,
  shownOrganization,
  type Organization,
} from "../contact/me.ts";
import type { Node } from "../../protocol/node.ts";
import { useCut } from "../needs/use-needs.ts";
import { stateOf } from "../nodes/states.ts";
import type { PaletteProps, Tables } from "../pages.ts";
import { go, pathOf } from "./router.ts";
import { CloseEnd } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import type { IconName, SignName } from "../ui/drawings.ts";
import { Icon, Sign } from "../ui/icon.tsx";
import { valueOf } from "../ui/field.tsx";
import { signOf } from "../ui/parts.tsx";

/** `sign`: drawn instead of the icon. `what`: found and shown beside the title. `hint`: shown at the end of the line. */
type Command = { title: string; path: string; icon: IconName; sign?: SignName; what?: string; hint?: string };
type Group = { name: string; commands: readonly Command[] };

/** The pages of an organization that the user may open. */
function pagesIn(shown: Organization, { organizationPages }: Tables): Command[] {
  return Object.entries(organizationPages)
    .filter(([, { isForAdmins }]) => isForAdmins !== true || isAdmin(shown))
    .map(([segment, { title, also, icon = "right", letter }]) => ({
      title,
      icon,
      ...(also === undefined ? {} : { what: also }),
      path: segment === "" ? pathOf(shown.slug) : pathOf(shown.slug, segment),
      ...(letter === undefined ? {} : { hint: `g ${letter}` }),
    }));
}

function actionsIn(shown: Organization): Command[] {
  const { slug } = shown;
  const ofAdmins: Command[] = [
    { title: "Add a node", icon: "plus", path: pathOf(slug, "nodes", "add") },
    { title: "Approve nodes", icon: "check", path: pathOf(slug, "nodes", "waiting") },
    { title: "Access at a moment", icon: "access", path: pathOf(slug, "past") },
  ];
  const phones: Command = { title: "Phones", icon: "phone", path: pathOf(slug, "phones") };
  return [...(isAdmin(shown) ? ofAdmins : []), ...(mayAddOwn.value ? [phones] : [])];
}

/** The pages that the user may open, what can be done, and what lies outside the organization. */
function groupsOfPages(tables: Tables): Group[] {
  const shown = shownOrganization.value;
  const others = organizations.value
    .filter((each) => each.slug !== shown?.slug)
    .map(({ name, slug }) => ({
      title: name,
      icon: "organizations" as const,
      path: pathOf(slug),
      what: slug,
    }));
  const staff = Object.entries(me.value?.is_staff === true ? tables.staffPages : {}).map(
    ([segment, { title, icon = "right" }]) => ({ title, icon, path: pathOf("-", segment) }),
  );
  const { title } = tables.otherPages.account;
  const account = { title, icon: "users" as const, path: pathOf("-", "account") };
  return [
    { name: "Pages", commands: shown === undefined ? [] : pagesIn(shown, tables) },
    { name: "Do", commands: shown === undefined ? [] : actionsIn(shown) },
    { name: "Organizations", commands: others },
    { name: "Control plane", commands: [...staff, account] },
  ];
}

/** Opens the page of a node. `cut`: how many paths have no other way than a relay that is away (useCut). */
function commandOf({ id, name, ip_address, ...node }: Node, slug: string, cut: number | undefined): Command {
  const [state, hint] = stateOf({ ...node, cut });
  const path = pathOf(slug, "nodes", id);
  return { title: name, icon: "machines", sign: signOf[state], path, what: ip_address, hint };
}

/** Nodes whose name, alias or address has the text, read a moment after the last key. Until then, the former results. */
function useNodesOf(text: string): { nodes: readonly Command[]; isSearching: boolean } {
  const slug = shownOrganization.value?.slug;
  const cut = useCut(slug ?? "");
  const [{ of, all }, setFound] = useState<{ of: string; all: readonly Node[] }>({ of: "", all: [] });
  useEffect(() => {
    const found = (all: readonly Node[] = []) => setFound({ of: text, all });
    if (slug === undefined || text === "") return found();
    const over = new AbortController();
    const timer = setTimeout(() => {
      const path = apiPath(nodesApi.list, { slug }, { page_size: "8", search: text });
      get(path, over.signal).then(
        (nodes) => found(nodes),
        (error: unknown) => {
          // The bar says that the control plane is away; pages are found without it.
          if (over.signal.aborted) return;
          if (!(error instanceof ApiError)) throw error;
          found();
        },
      );
    }, 100);
    return () => {
      clearTimeout(timer);
      over.abort();
    };
  }, [slug, text]);
  const nodes = slug === undefined ? [] : all.map((node) => commandOf(node, slug, cut));
  return { nodes, isSearching: of !== text };
}

/** What can be done with the first node that was found. */
function actionsOn(slug: string | undefined, first: Command | undefined): Group[] {
  if (slug === undefined || first === undefined) return [];
  const name = encodeURIComponent(first.title);
  return [
    {
      name: `With ${first.title}`,
      commands: [
        {
          title: `Paths of ${first.title}`,
          icon: "map",
          path: `${pathOf(slug, "map")}?view=table&search=${name}`,
        },
        {
          title: `What may ${first.title} reach?`,
          icon: "access",
          path: `${pathOf(slug, "access")}?from=${name}`,
        },
      ],
    },
  ];
}

export const Palette = ({ kind, ...props }: PaletteProps): VNode =>
  kind === "keys" ? <Keys {...props} /> : <Search {...props} />;

function Search({ pages: tables, close }: Omit<PaletteProps, "kind">) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const words = text.trim().toLowerCase();
  const pages = useMemo(() => groupsOfPages(tables), []);
  const { nodes, isSearching } = useNodesOf(words);
  const found = pages.map(({ name, commands }) => ({
    name,
    commands: commands.filter(({ title, what = "" }) => `${title} ${what}`.toLowerCase().includes(words)),
  }));
  // Behind the others: what is chosen already does not move when they arrive.
  const groups = [
    ...found,
    { name: "Nodes", commands: nodes },
    ...actionsOn(shownOrganization.value?.slug, nodes[0]),
  ].filter(({ commands }) => commands.length > 0);
  const shown = groups.flatMap(({ commands }) => commands);
  const isPageFound = found.some(({ commands }) => commands.length > 0);
  const chosen = Math.min(at, shown.length - 1);
  const open = (command: Command | undefined) => {
    if (command === undefined) return;
    close();
    go(command.path);
  };
  // Enter came before the node was found.
  const isAwaiting = useRef(false);
  useEffect(() => {
    if (isAwaiting.current && !isSearching) open(shown[0]);
    document.getElementById(`command-${chosen}`)?.scrollIntoView({ block: "nearest" });
  }, [isSearching, chosen]);
  const press = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) setAt((chosen + step + shown.length) % Math.max(1, shown.length));
    else if (event.key === "Enter") {
      isAwaiting.current = isSearching && !isPageFound;
      if (!isAwaiting.current) open(shown[chosen]);
    } else return;
    event.preventDefault();
  };
  const change = (event: Event) => {
    setText(valueOf(event));
    setAt(0);
    isAwaiting.current = false;
  };
  const none = "No page or node has this in its name, alias or address.";
  const foundWords = shown.length === 0 ? none : `${shown.length} found`;
  return (
    <Dialog title="Find" isPalette={true} close={close}>
      <label>
        <Icon name="search" />
        <input
          role="combobox"
          aria-label="Page or node"
          aria-expanded="true"
          aria-controls="commands"
          aria-activedescendant={shown.length === 0 ? undefined : `command-${chosen}`}
          placeholder="Page or node"
          maxlength={100}
          value={text}
          onInput={change}
          onKeyDown={press}
        />
      </label>
      <div id="commands" role="listbox" aria-label="Found">
        {groups.map(({ name, commands }) => (
          <div key={name} role="group" aria-label={name}>
            <h3 aria-hidden="true">
              <bdi>{name}</bdi>
            </h3>
            {commands.map((command) => {
              const place = shown.indexOf(command);
              const isChosen = place === chosen;
              return <Option key={command.path} {...{ command, place, isChosen, open }} />;
            })}
          </div>
        ))}
      </div>
      <p class={shown.length === 0 ? "quiet none" : "unseen"} role="status">
        {isSearching ? "Searching" : foundWords}
      </p>
    </Dialog>
  );
}

type OptionProps = { command: Command; place: number; isChosen: boolean; open(command: Command): void };

const Option = ({ command, place, isChosen, open }: OptionProps) => (
  <div
    id={`command-${place}`}
    class="option"
    role="option"
    aria-selected={isChosen}
    onClick={() => open(command)}
  >
    {command.sign === undefined ? <Icon name={command.icon} /> : <Sign name={command.sign} />}
    <bdi class={command.sign === undefined ? "cut" : "name cut"}>{command.title}</bdi>{" "}
    <span class="quiet cut">{command.what}</span>{" "}
    {isChosen ? <kbd aria-hidden="true">Enter</kbd> : <span class="faint">{command.hint}</span>}
  </div>
);

function Keys({ pages: { organizationPages }, close }: Omit<PaletteProps, "kind">) {
  const pages = Object.values(organizationPages).flatMap(({ title, letter }) =>
    letter === undefined ? [] : [[`g ${letter}`, title] as const],
  );
  const all = [
    ["Ctrl K", "Go to a page or a node"],
    ["/", "Search on the page: Enter or ↓ goes to the first row, Escape leaves it once it is empty"],
    ["j k", "Next and previous row of a list"],
    ["Enter", "Open the row"],
    ["Escape", "Close what is open"],
    ["?", "This list"],
    ...pages,
  ] as const;
  return (
    <Dialog title="Keys" close={close}>
      <dl class="facts keys mt8">
        {all.map(([keys, what]) => (
          <div key={keys}>
            <dt>
              {keys.split(" ").map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <p class="quiet mt8">Control plane {me.value?.server_version}</p>
      <CloseEnd close={close} />
    </Dialog>
  );
}
