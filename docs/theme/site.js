// Menu, light and dark, copying, and a search in the sections of all pages (window.sections, which the build writes).
const root = document.currentScript.dataset.root
const byId = (id) => document.getElementById(id)

byId("theme").onclick = () => {
  const html = document.documentElement
  localStorage.theme = html.dataset.theme = html.dataset.theme === "dark" ? "light" : "dark"
}
byId("menu").onclick = () => byId("menu").setAttribute("aria-expanded", byId("nav").classList.toggle("open"))
document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest" })

for (const pre of document.querySelectorAll("main pre")) {
  const copy = Object.assign(document.createElement("button"), { className: "copy", textContent: "Copy" })
  copy.onclick = async () => {
    await navigator.clipboard.writeText(pre.querySelector("code").innerText)
    copy.textContent = "Copied"
  }
  pre.append(copy)
}

const plain = (text) => text.toLowerCase().normalize("NFKD").replace(/[\u0300-\u036f]/g, "")
for (const section of window.sections) {
  section.heading = plain(section.title)
  section.body = plain(section.text)
}

const WEIGHTS = { tutorials: 6, "how-to": 8, explanation: 4, reference: 2 }

// Sections that hold every word, those with all of them in their heading or as one phrase first.
function search(query) {
  const words = plain(query).split(/\s+/).filter(Boolean)
  const score = ({ heading, body, location }) => {
    let sum = WEIGHTS[location.split("/")[0]] || 0
    if (location.startsWith("project/changes")) sum = -10
    for (const word of words) {
      const times = body.split(word).length - 1
      if (!times && !heading.includes(word)) return -99
      sum += Math.min(times, 5) + (heading.includes(word) ? 12 : 0)
    }
    const phrase = words.join(" ")
    return sum + (heading.startsWith(phrase) ? 20 : 0) + (words.length > 1 && body.includes(phrase) ? 15 : 0)
  }
  const scored = window.sections.map((section) => [score(section), section]).filter(([value]) => value > -50)
  return [scored.sort((a, b) => b[0] - a[0]).slice(0, 12).map(([, section]) => section), words]
}

function excerpt(section, words) {
  const at = Math.max(0, section.body.indexOf(words[0]) - 50)
  const small = document.createElement("small")
  const parts = section.text.slice(at, at + 150).split(new RegExp(`(${words.map((w) => w.replace(/\W/g, "\\$&")).join("|")})`, "i"))
  small.append(...parts.map((part, i) => (i % 2 ? Object.assign(document.createElement("mark"), { textContent: part }) : part)))
  return small
}

const query = byId("query"), found = byId("found")
query.oninput = () => {
  const [sections, words] = search(query.value)
  found.hidden = !words.length
  found.replaceChildren(...sections.map((section) => {
    const item = document.createElement("li")
    const link = Object.assign(document.createElement("a"), { href: root + section.location })
    link.append(section.title, excerpt(section, words))
    item.append(link)
    return item
  }))
  if (words.length && !sections.length) found.innerHTML = "<li><p>Nothing found.</p></li>"
}
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/INPUT|TEXTAREA/.test(document.activeElement.tagName)) { event.preventDefault(); query.focus() }
  if (event.key === "Escape") { found.hidden = true; query.blur() }
  const links = [...found.querySelectorAll("a")], at = links.indexOf(document.activeElement)
  if (event.key === "ArrowDown" && (event.target === query || at >= 0)) { event.preventDefault(); links[at + 1]?.focus() }
  if (event.key === "ArrowUp" && at >= 0) { event.preventDefault(); (links[at - 1] || query).focus() }
  if (event.key === "Enter" && event.target === query) links[0]?.click()
})
document.addEventListener("click", (event) => { if (!event.target.closest(".search")) found.hidden = true })
