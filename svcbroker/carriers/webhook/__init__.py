"""
Webhooks: events are sent to URLs by POST.

C{targets} reads the URLs that events are sent to, C{signing} the secrets; C{webhookrecords} tells
what is kept. C{posting} has the requests and answers, and makes requests through
L{svcbroker.net.http}. C{delivery} is the life of one webhook's subscription; C{webhookservice} has
all webhooks, and C{feature} is what the daemon is given.
"""
