// Imports of the frame and most pages. Each page imports this file: the bundler makes a file for every set of pages
// that share something, and so puts all of it into one. A browser has six connections, so fifteen small files need
// three rounds.

import "./access/rules.ts";
import "./actor.ts";
import "./authorities.ts";
import "./due-phones.tsx";
import "./field-parts.ts";
import "./leaving.ts";
import "./member-names.ts";
import "./named-nodes.ts";
import "./nodes/neighbours.ts";
import "./nodes/path-drawings.tsx";
import "./node-list.ts";
import "./nodes.ts";
import "./own-nodes.tsx";
import "./pages/groups-field.tsx";
import "./pages/user-fields.tsx";
import "./provider-words.ts";
import "./providers.ts";
import "./removed-words.ts";
import "./rule-change.ts";
import "./step-up.tsx";
import "./token-words.ts";
import "./ui/bulk.tsx";
import "./ui/dialog.tsx";
import "./ui/list.tsx";
import "./ui/awaited-nodes.tsx";
import "./ui/menu.tsx";
import "./ui/page.tsx";
import "./ui/tag.tsx";
import "./ui/time-column.ts";
import "./ui/told.tsx";
import "./unsaved.ts";
import "./use-needs.ts";
