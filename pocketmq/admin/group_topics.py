"""The topics of a group: its retries, the retries of its pops, its dead letters."""

from pocketmq.admin.admin import Admin
from pocketmq.model.names import dlq_topic, is_group_topic, retry_topic
from pocketmq.model.pop_receipt import pop_retry_topic


async def group_topics(admin: Admin, group: str) -> list[str]:
    """Return those that the name servers know."""
    known = set(await admin.topics.names())
    own = {retry_topic(group), dlq_topic(group)}
    popped = {
        pop_retry_topic(topic, group, v2=v2)
        for topic in known
        if not is_group_topic(topic)
        for v2 in (False, True)
    }
    # Group g's retries of topic b have the name of the retry topic of a group g_b.
    of_others = {retry_topic(each) for each in await admin.groups.names() if each != group}
    return sorted(known & (own | popped - of_others))


async def delete_group_topics(admin: Admin, group: str, *, cluster: str | None = None) -> list[str]:
    """Delete them, with their messages. Returns: their names."""
    names = await group_topics(admin, group)
    for name in names:
        await admin.topics.delete(name, cluster=cluster)
    return names
